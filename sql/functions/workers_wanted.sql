-- How many more workers a function can use that gets fewer events done than come; 0: none, as each task that runs has a lane
-- already. p_all: tasks that run in the whole cluster; p_tasks: those of the function.
create or replace function jeet_internal.workers_wanted(
    p_workers bigint, p_lanes bigint, p_all bigint, p_tasks bigint, p_arrival float8, p_processed float8) returns int
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select greatest(0, least(greatest(1, ceil(p_workers * p_arrival / greatest(p_processed, 1)) - p_workers),
                             ceil(p_all / l.lanes) - p_workers, ceil(p_tasks / l.lanes), 100))::int
      from (select p_lanes::float8 / greatest(p_workers, 1) as lanes) l
     where p_lanes > 0
$$;
revoke all on function jeet_internal.workers_wanted(bigint, bigint, bigint, bigint, float8, float8) from public;
