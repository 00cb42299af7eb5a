select f.id, f.name, f.version, f.status, f.created_at, f.deployed_at, f.hold_ttl, v.filename, v.source, v.spec, v.plugin_hash, v.digest,
       f.draining, (select r.phase from jeet_internal.rebuild r where r.function_id = f.id) as rebuilding, f.rebuild_failed,
       array(select s.name
               from jeet_internal.stage g
              cross join unnest(g.outputs) with ordinality o(id, place)
               join jeet_internal.stream s on s.id = o.id and not s.internal
              where g.function_id = f.id and g.version = f.version
              group by s.name
              order by min(o.place), s.name) as outputs
  from jeet_internal.function f
  join jeet_internal.function_version v on v.function_id = f.id and v.version = f.version
 where f.name = %(name)s
