-- Delete at most $2 lines of console output that are older than $1 hours.
with doomed as materialized (
    select l.id
      from jeet_internal.log l
     where l.logged_at < clock_timestamp() - make_interval(secs => $1::float8 * 3600)
     order by l.logged_at
     limit $2::int
       for update skip locked
), deleted as (
    delete from jeet_internal.log l using doomed d where l.id = d.id returning 1
)
select count(*) from deleted
