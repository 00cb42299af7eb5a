-- All versions of a function, newest first.
select v.version, v.version = f.version as current, v.deployed_at, v.filename, v.spec ->> 'source' as source,
       v.spec ->> 'sink' as sink, v.digest, v.plugin_hash, v.source is not null as has_source
  from jeet_internal.function f
  join jeet_internal.function_version v on v.function_id = f.id
 where f.name = %(name)s
 order by v.version desc
