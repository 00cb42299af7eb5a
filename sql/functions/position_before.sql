-- Where a partition, or a reader in it (p_function 0: its head), stood a while ago: the latest note that is at least so
-- old, else the oldest there is. SECURITY DEFINER: readers of the views that call it see no table of this schema.
create or replace function jeet_internal.position_before(
    p_stream int, p_function int, p_stage int, p_partition int, p_age interval, out at timestamptz, out "offset" bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select n.at, n.offsets[p_partition + 1]
      from ((select p.at, p.offsets
               from jeet_internal.position_sample p
              where p.stream_id = p_stream and p.function_id = p_function and p.stage = p_stage and p.at <= statement_timestamp() - p_age
              order by p.at desc
              limit 1)
            union all
            (select p.at, p.offsets
               from jeet_internal.position_sample p
              where p.stream_id = p_stream and p.function_id = p_function and p.stage = p_stage
              order by p.at
              limit 1)) n
     limit 1
$$;
