-- Tasks with state that expired more than $1 seconds ago: one look into an index for each task.
select t.id
  from jeet_internal.task t
  cross join lateral (select clock_timestamp() - jeet_internal.ttl_hold_now(t, clock_timestamp()) - make_interval(secs => $1::float8) as before) clock
 where exists (select from jeet_internal.state s where s.task_id = t.id and s.expires_at <= clock.before)
 order by t.id
