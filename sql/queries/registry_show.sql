select f.id, f.name, f.version, f.status, f.created_at, f.deployed_at, f.hold_ttl, v.filename, v.source, v.spec, v.plugin_hash, v.digest,
       array(select s.name from unnest(g.outputs) with ordinality o(id, place) join jeet_internal.stream s on s.id = o.id order by o.place) as outputs
  from jeet_internal.function f
  join jeet_internal.function_version v on v.function_id = f.id and v.version = f.version
  left join jeet_internal.stage g on g.function_id = f.id and g.version = f.version and g.stage = 0
 where f.name = %(name)s
