-- The stages of a version, each with the streams that it reads, by id.
select g.stage, g.plan, v.graph, v.spec,
       array(select s.name from jeet_internal.stream s where s.id = any (g.inputs) order by s.id) as streams,
       array(select s.partitions from jeet_internal.stream s where s.id = any (g.inputs) order by s.id) as partitions
  from jeet_internal.function_version v
  join jeet_internal.stage g on g.function_id = v.function_id and g.version = v.version
 where v.function_id = %(function)s and v.version = %(version)s
 order by g.stage
