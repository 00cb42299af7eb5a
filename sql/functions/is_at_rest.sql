-- Whether a change that takes long holds a function: nobody may take its tasks meanwhile (control/change.py, FUNCTION_CLASS).
create or replace function jeet_internal.is_at_rest(p_function int) returns boolean language sql stable as $$
    select exists (select from pg_locks l
                    where l.locktype = 'advisory' and l.database = (select d.oid from pg_database d where d.datname = current_database())
                      and l.classid = 0x4A656566::oid and l.objid = p_function::oid and l.objsubid = 2
                      and l.mode = 'ExclusiveLock' and l.granted)
$$;
