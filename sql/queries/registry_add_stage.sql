insert into jeet_internal.stage (function_id, version, stage, inputs, outputs, plan)
values (%(function)s, %(version)s, %(stage)s, %(inputs)s::int[], %(outputs)s::int[], %(plan)s)
    on conflict (function_id, version, stage) do update set inputs = excluded.inputs, outputs = excluded.outputs, plan = excluded.plan
