-- All rules of sql/rules, the worst first. SECURITY DEFINER: a reader sees what the owner of the schema may see of other
-- users' sessions; an owner that is not a superuser sees them with: grant pg_read_all_stats to the owner.
create or replace function jeet_internal.findings()
returns table (place int, rule text, observation text, likely_cause text, evidence text, action text, since timestamptz, figures jsonb)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
    select 1, 'no_workers', r.* from jeet_internal.rule_no_workers r
    union all select 2, 'no_coordinator', r.* from jeet_internal.rule_no_coordinator r
    union all select 3, 'tasks_unowned', r.* from jeet_internal.rule_tasks_unowned r
    union all select 4, 'task_halted', r.* from jeet_internal.rule_task_halted r
    union all select 5, 'task_stuck', r.* from jeet_internal.rule_task_stuck r
    union all select 6, 'poison_event', r.* from jeet_internal.rule_poison_event r
    union all select 7, 'lock_held', r.* from jeet_internal.rule_lock_held r
    union all select 8, 'publishers_refused', r.* from jeet_internal.rule_publishers_refused r
               where not exists (select from jeet_internal.rule_too_few_workers w where w.figures ->> 'function' = r.figures ->> 'function')
    union all select 9, 'too_few_workers', r.* from jeet_internal.rule_too_few_workers r
    union all select 10, 'data_skew', r.* from jeet_internal.rule_data_skew r
    union all select 11, 'worker_silent', r.* from jeet_internal.rule_worker_silent r
    union all select 12, 'worker_lost', r.* from jeet_internal.rule_worker_lost r
    union all select 13, 'state_growth', r.* from jeet_internal.rule_state_growth r
    union all select 14, 'heartbeat_timeouts', r.* from jeet_internal.rule_heartbeat_timeouts r
    union all select 15, 'old_rows', r.* from jeet_internal.rule_old_rows r
    union all select 16, 'connections', r.* from jeet_internal.rule_connections r
    union all select 17, 'notify_queue', r.* from jeet_internal.rule_notify_queue r
    union all select 18, 'watermark_stalled', r.* from jeet_internal.rule_watermark_stalled r
    union all select 19, 'dead_letters', r.* from jeet_internal.rule_dead_letters r
    union all select 20, 'draining', r.* from jeet_internal.rule_draining r
    union all select 21, 'long_transaction', r.* from jeet_internal.rule_long_transaction r
    union all select 22, 'vacuum_behind', r.* from jeet_internal.rule_vacuum_behind r
    union all select 23, 'maintenance', r.* from jeet_internal.rule_maintenance r
    union all select 24, 'mixed_workers', r.* from jeet_internal.rule_mixed_workers r
    union all select 25, 'clocks', r.* from jeet_internal.rule_clocks r
    union all select 26, 'lock_table', r.* from jeet_internal.rule_lock_table r
     order by 1
$$;
