-- A function, its present version and its settings; the row is locked against other changes.
select f.id, f.status, f.version, v.digest, v.spec, v.filename, f.hold_ttl, f.draining,
       exists (select from jeet_internal.rebuild r where r.function_id = f.id) as rebuilding,
       (select max(o.version) from jeet_internal.function_version o where o.function_id = f.id) as newest,
       (select count(*) from jeet_internal.task t where t.function_id = f.id) as tasks
  from jeet_internal.function f
  join jeet_internal.function_version v on v.function_id = f.id and v.version = f.version
 where f.name = %(name)s
   for no key update of f
