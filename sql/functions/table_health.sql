-- Size, dead rows and vacuum of each table of Jeet's, the log's segments together as one. SECURITY DEFINER: sizes of
-- tables that a reader may not read.
create or replace function jeet_internal.table_health()
returns table (name text, live_rows bigint, dead_rows bigint, last_vacuum timestamptz, bytes bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select case when c.relispartition then 'event' else c.relname::text end, sum(s.n_live_tup)::bigint, sum(s.n_dead_tup)::bigint,
           max(greatest(s.last_vacuum, s.last_autovacuum)), sum(pg_total_relation_size(c.oid))::bigint
      from pg_catalog.pg_class c
      join pg_catalog.pg_stat_all_tables s on s.relid = c.oid
     where c.relnamespace = 'jeet_internal'::regnamespace and c.relkind in ('r', 'p')
     group by 1
$$;
