select v.filename, v.source, v.bytecode, v.plugin_hash, v.spec, s.plan
  from jeet_internal.function_version v
  join jeet_internal.stage s on s.function_id = v.function_id and s.version = v.version
 where v.function_id = $1 and v.version = $2 and s.stage = $3
