-- Size on disk of a stream's part of the log, indexes included.
create or replace function jeet_internal.stream_bytes(p_stream int)
returns bigint language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(sum(pg_total_relation_size(t.relid)), 0)::bigint
      from pg_partition_tree(to_regclass(format('jeet_internal.event_%s', p_stream))) t
$$;
