-- Estimate rows and bytes of each collection of state, from p_pages pages of the table at most: all of them if there are
-- no more, else each with the same chance, a power of 1/2. The choice of a page stays the same from one time to the next
-- (REPEATABLE), so that growth is told by new pages and not by the luck of two draws. Rows of one page belong together, so
-- the relative standard error is about one over the root of how many pages of the collection were seen.
create or replace function jeet_internal.measure_state(p_pages int) returns int language plpgsql as $$
declare
    v_pages   bigint := pg_relation_size('jeet_internal.state') / current_setting('block_size')::int;
    v_percent float8 := 100;
    v_rows    int;
begin
    while v_pages * v_percent / 100 > p_pages loop
        v_percent := v_percent / 2;
    end loop;
    with seen as (
        select t.function_id, s.collection_id, count(*) as rows, sum(pg_column_size(s.*)) as bytes,
               count(distinct (s.ctid::text::point)[0]) as pages
          from jeet_internal.state s tablesample system (v_percent) repeatable (1)
          join jeet_internal.task t on t.id = s.task_id
         group by t.function_id, s.collection_id
    )
    insert into jeet_internal.state_size (function_id, collection_id, at, rows, bytes, error, keep_until)
    select c.function_id, c.id, n.at, round(coalesce(s.rows, 0) * 100 / v_percent), round(coalesce(s.bytes, 0) * 100 / v_percent),
           case when v_percent = 100 then 0 else 1 / sqrt(greatest(s.pages, 1)) end,
           n.at + case when exists (select from jeet_internal.state_size e
                                     where e.function_id = c.function_id and e.collection_id = c.id and e.at >= date_trunc('hour', n.at))
                       then interval '3 hours' else interval '7 days' end
      from (select clock_timestamp() as at) n
     cross join jeet_internal.collection c
      left join seen s on s.function_id = c.function_id and s.collection_id = c.id
        on conflict do nothing;
    get diagnostics v_rows = row_count;
    return v_rows;
end $$;
