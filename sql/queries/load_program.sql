-- What a task runs: version, stage, and by which stages its internal inputs are made ({stream id: [stage, hold in ms]}).
select v.filename, v.source, v.bytecode, v.plugin_hash, v.spec, s.plan,
       (select json_object_agg(i.stream_id, json_build_array(u.stage, u.plan -> 'hold_ms'))
          from unnest(s.inputs) i (stream_id)
          join jeet_internal.stream m on m.id = i.stream_id and m.internal
          join jeet_internal.stage u on u.function_id = s.function_id and u.version = s.version and i.stream_id = any (u.outputs)) as makers
  from jeet_internal.function_version v
  join jeet_internal.stage s on s.function_id = v.function_id and s.version = v.version
 where v.function_id = $1 and v.version = $2 and s.stage = $3
