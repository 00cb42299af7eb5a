-- A version with its one stage.
with added as (
    insert into jeet_internal.function_version (function_id, version, filename, source, bytecode, plugin_hash, graph, spec, digest)
    values (%(function)s, %(version)s, %(filename)s, %(source)s, %(bytecode)s, %(plugin_hash)s, %(graph)s, %(spec)s, %(digest)s)
    returning function_id, version
)
insert into jeet_internal.stage (function_id, version, stage, inputs, outputs)
select function_id, version, 0, %(inputs)s::int[], %(outputs)s::int[] from added
