-- How long the clock of a task's state has stood still by now: what earlier pauses added up to, and, while it has no owner,
-- the time beyond the first minute. Expired means expires_at + this <= the database clock; alike for guest, view and sweep.
-- An owner that was lost counts as none from its last heartbeat on. Acquiring the task turns the rest into ttl_hold.
create or replace function jeet_internal.ttl_hold_now(t jeet_internal.task, p_at timestamptz) returns interval
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select t.ttl_hold + case when f.hold_ttl
               then coalesce(greatest(interval '0', p_at - coalesce(t.unowned_since, w.heartbeat_at) - interval '1 minute'), interval '0')
               else interval '0' end
      from jeet_internal.function f
      left join jeet_internal.worker w on w.id = t.worker_id and w.status = 'lost'
     where f.id = t.function_id
$$;
