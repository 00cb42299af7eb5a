-- Delete at most $2 hot keys that are older than $1 hours.
with doomed as materialized (
    select f.task_id, f.stream_id, f.key
      from jeet_internal.hot_key f
     where f.at < statement_timestamp() - make_interval(secs => $1::float8 * 3600)
     order by f.at
     limit $2::int
       for update skip locked
), deleted as (
    delete from jeet_internal.hot_key f
     using doomed d
     where f.task_id = d.task_id and f.stream_id = d.stream_id and f.key = d.key
    returning 1
)
select count(*) from deleted
