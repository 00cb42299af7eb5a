-- Client transactions in this database that have been open for longer than p_age. SECURITY DEFINER: a reader sees what
-- the owner of the schema may see of other users' sessions.
create or replace function jeet_internal.long_transactions(p_age interval)
returns table (pid int, usename text, application_name text, state text, xact_start timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select a.pid, a.usename::text, a.application_name, a.state, a.xact_start
      from pg_catalog.pg_stat_activity a
     where a.datname = current_database() and a.backend_type = 'client backend' and a.xact_start < clock_timestamp() - p_age
       and a.pid <> pg_backend_pid()
$$;
