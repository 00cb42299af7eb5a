-- Delete at most $1 estimates of state that are whose time is over.
with doomed as materialized (
    select f.function_id, f.collection_id, f.at
      from jeet_internal.state_size f
     where f.keep_until <= statement_timestamp()
     order by f.keep_until
     limit $1::int
       for update skip locked
), deleted as (
    delete from jeet_internal.state_size f
     using doomed d
     where f.function_id = d.function_id and f.collection_id = d.collection_id and f.at = d.at
    returning 1
)
select count(*) from deleted
