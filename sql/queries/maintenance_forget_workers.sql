-- Forget workers lost more than $1 hours ago, except those that a task counts its time without an owner from.
with forgotten as (
    delete from jeet_internal.worker w
     where w.status = 'lost' and w.heartbeat_at < clock_timestamp() - make_interval(secs => $1::float8 * 3600)
       and not exists (select from jeet_internal.task t where t.worker_id = w.id)
    returning 1
)
select count(*) from forgotten
