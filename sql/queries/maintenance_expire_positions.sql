-- Delete at most $1 notes of positions that are whose time is over.
with doomed as materialized (
    select f.stream_id, f.function_id, f.stage, f.at
      from jeet_internal.position_sample f
     where f.keep_until <= statement_timestamp()
     order by f.keep_until
     limit $1::int
       for update skip locked
), deleted as (
    delete from jeet_internal.position_sample f
     using doomed d
     where f.stream_id = d.stream_id and f.function_id = d.function_id and f.stage = d.stage and f.at = d.at
    returning 1
)
select count(*) from deleted
