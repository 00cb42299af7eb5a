-- Delete at most $2 changes of leases that are older than $1 hours.
with doomed as materialized (
    select f.id
      from jeet_internal.lease_change f
     where f.at < statement_timestamp() - make_interval(secs => $1::float8 * 3600)
     order by f.at
     limit $2::int
       for update skip locked
), deleted as (
    delete from jeet_internal.lease_change f
     using doomed d
     where f.id = d.id
    returning 1
)
select count(*) from deleted
