-- A function that is to go on from a savepoint of another: its version with the same number, as entries of state name it,
-- and its collections.
with source as (
    select f.id, f.on_error, f.hold_ttl, v.*
      from jeet_internal.function f
      join jeet_internal.function_version v on v.function_id = f.id and v.version = %(version)s
     where f.id = %(function)s
), made as (
    insert into jeet_internal.function (name, version, on_error, hold_ttl)
    select %(name)s, s.version, coalesce(s.spec -> 'on_error', s.on_error), coalesce((s.spec ->> 'hold_ttl')::boolean, s.hold_ttl) from source s
    returning id
), versioned as (
    insert into jeet_internal.function_version (function_id, version, filename, source, bytecode, plugin_hash, graph, spec, digest)
    select m.id, s.version, s.filename, s.source, s.bytecode, s.plugin_hash, s.graph, %(spec)s, %(digest)s from source s, made m
), named as (
    insert into jeet_internal.collection (function_id, id, name, ttl, refresh)
    select m.id, c.id, c.name, c.ttl, c.refresh from jeet_internal.collection c, made m where c.function_id = %(function)s
)
select id from made
