-- Delete at most $2 notes that are older than $1 hours.
with doomed as materialized (
    select h.task_id, h.stream_id, h.recorded_at
      from jeet_internal.checkpoint_history h
     where h.recorded_at < clock_timestamp() - make_interval(secs => $1::float8 * 3600)
     order by h.recorded_at
     limit $2::int
       for update skip locked
), deleted as (
    delete from jeet_internal.checkpoint_history h
     using doomed d
     where h.task_id = d.task_id and h.stream_id = d.stream_id and h.recorded_at = d.recorded_at
    returning 1
)
select count(*) from deleted
