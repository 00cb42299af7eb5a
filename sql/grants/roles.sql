-- Who may do what. Roles belong to the whole cluster and may exist already, made by an administrator or by a migration
-- of another database that runs at this moment. Applied at every migration, so that what was missing then is made up.
--   jeet_reader    reads the views of schema jeet, nothing else
--   jeet_producer  publishes, nothing else
--   jeet_worker    runs workers and coordinators
-- Give them to login roles: grant jeet_reader to alice;
do $$
declare
    v_role  text;
    v_table text;
begin
    foreach v_role in array array['jeet_reader', 'jeet_producer', 'jeet_worker'] loop
        continue when exists (select from pg_roles where rolname = v_role);
        begin
            execute format('create role %I nologin', v_role);
        exception
            when duplicate_object or unique_violation then
                null;  -- the other migration was quicker
            when insufficient_privilege then
                raise warning 'role % is missing and % may not create roles; have it created (create role % nologin), then run jeet migrate again',
                    v_role, current_user, v_role;
        end;
    end loop;

    -- Functions may be executed by everybody unless that is taken away; without it, readers could publish.
    execute 'revoke all on all functions in schema jeet, jeet_internal, jeet_pgqueuer from public';

    if exists (select from pg_roles where rolname = 'jeet_reader') then
        grant usage on schema jeet to jeet_reader;
        execute 'grant select on all tables in schema jeet to jeet_reader';
        -- Called by views; the schema that they are in stays closed.
        grant execute on function jeet_internal.published_at(int, int, bigint), jeet_internal.stream_bytes(int),
            jeet_internal.long_transactions(interval), jeet_internal.table_health(), jeet_internal.findings(),
            jeet_internal.position_before(int, int, int, int, interval), jeet_internal.ttl_hold_now(jeet_internal.task, timestamptz),
            jeet.partition_of(text, int) to jeet_reader;
    end if;

    if exists (select from pg_roles where rolname = 'jeet_producer') then
        grant usage on schema jeet to jeet_producer;
        execute (select 'grant execute on function ' || string_agg(p.oid::regprocedure::text, ', ') || ' to jeet_producer'
                   from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                  where n.nspname = 'jeet' and p.proname in ('publish', 'publish_many', 'publish_texts', 'publish_lines', 'partition_of'));
    end if;

    if exists (select from pg_roles where rolname = 'jeet_worker') then
        grant usage on schema jeet, jeet_internal to jeet_worker;
        execute 'grant select on all tables in schema jeet to jeet_worker';
        -- Segments of the log are reached through their parent and need no grant of their own.
        for v_table in select c.oid::regclass::text from pg_class c
                        where c.relnamespace = 'jeet_internal'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition loop
            execute format('grant select, insert, update, delete on %s to jeet_worker', v_table);
        end loop;
        -- What is deployed is changed by deploys, which are the owner's; a worker only marks functions and streams.
        revoke insert, update, delete on jeet_internal.migration, jeet_internal.stage, jeet_internal.function_version from jeet_worker;
        revoke insert, delete on jeet_internal.function, jeet_internal.stream from jeet_worker;
        execute 'grant usage on all sequences in schema jeet_internal to jeet_worker';
        execute 'grant execute on all functions in schema jeet, jeet_internal to jeet_worker';
        -- The maintenance jobs' own tables.
        grant usage on schema jeet_pgqueuer to jeet_worker;
        execute 'grant select, insert, update, delete on all tables in schema jeet_pgqueuer to jeet_worker';
        execute 'grant usage on all sequences in schema jeet_pgqueuer to jeet_worker';
        execute 'grant execute on all functions in schema jeet_pgqueuer to jeet_worker';
    end if;
end $$;
