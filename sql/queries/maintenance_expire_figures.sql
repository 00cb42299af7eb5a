-- Delete at most $2 hours of figures that are older than $1 hours.
with doomed as materialized (
    select f.task_id, f.span_s, f.at
      from jeet_internal.task_figures f
     where f.span_s = 3600 and f.at < statement_timestamp() - make_interval(secs => $1::float8 * 3600)
     order by f.at
     limit $2::int
       for update skip locked
), deleted as (
    delete from jeet_internal.task_figures f
     using doomed d
     where f.task_id = d.task_id and f.span_s = d.span_s and f.at = d.at
    returning 1
)
select count(*) from deleted
