-- Take tasks over for a worker that holds their advisory locks: bump the epoch, which fences off whoever ran them, and
-- only then read where they stand (each statement of this function sees what was committed before it).
-- Skips a task that is not (or no longer) this worker's to run, or whose function is at rest for a change that takes long:
-- who waited for that would keep the tasks of other functions waiting. Rows are locked by id, ascending; a caller sets
-- lock_timeout, as a stalled predecessor may sit on a row in an open transaction.
create or replace function jeet_internal.acquire_tasks(p_worker int, p_backend_pid int, p_tasks int[])
returns table (task_id int, function_id int, function_name text, stage int, partition int, epoch bigint, version int,
               crashes int, ttl_hold_ms float8, on_error jsonb, inputs int[], next_offsets bigint[], outputs int[],
               clock_ms float8, watermarks_ms float8[], draining boolean,
               stops bigint[], muted int[], clock_limit_ms float8)
language plpgsql as $$
#variable_conflict use_column
declare
    v_task  int;
    v_from  int;
    v_since timestamptz;
    v_epoch bigint;
    v_died  boolean;
    v_back  boolean;
    v_now   timestamptz;
begin
    foreach v_task in array (select array_agg(id order by id) from unnest(p_tasks) id) loop
        -- FUNCTION_CLASS of jeet/db/keys.py.
        continue when not pg_try_advisory_xact_lock_shared(0x4A656566, (select t.function_id from jeet_internal.task t where t.id = v_task));
        -- The row lock first: the reading of the clock and of the owner must come after the wait.
        -- An owner that did not release the task died with it, unless its process came back under a new incarnation.
        select t.worker_id, t.unowned_since, t.epoch into v_from, v_since, v_epoch
          from jeet_internal.task t where t.id = v_task for update;
        v_back := exists (select from jeet_internal.worker gone join jeet_internal.worker here using (process)
                           where gone.id = v_from and here.id = p_worker);
        v_died := v_since is null and v_from <> p_worker and not v_back;
        v_now := clock_timestamp();
        update jeet_internal.task t
           set epoch = t.epoch + 1, version = f.version, worker_id = p_worker, backend_pid = p_backend_pid,
               acquired_at = v_now, unowned_since = null,
               crashes = t.crashes + case when v_died then 1 else 0 end,
               ttl_hold = jeet_internal.ttl_hold_now(t, v_now)
          from jeet_internal.function f
         where t.id = v_task and f.id = t.function_id and f.status <> 'paused' and t.status = 'running'
           and exists (select from jeet_internal.assignment a where a.task_id = t.id and a.worker_id = p_worker);
        if found then
            insert into jeet_internal.lease_change (task_id, from_worker, to_worker, reason, elapsed_ms, at)
            values (v_task,
                    coalesce(v_from, (select l.to_worker from jeet_internal.lease_change l where l.task_id = v_task order by l.id desc limit 1)),
                    p_worker,
                    case when v_died then 'lost' when v_from = p_worker then 'changed' when v_from is not null then 'restarted'
                         when v_epoch = 0 then 'deployed' else 'released' end,
                    -- Of an owner that was lost only its last heartbeat is known.
                    extract(epoch from v_now - coalesce(v_since, (select w.heartbeat_at from jeet_internal.worker w
                                                                   where w.id = v_from and w.id <> p_worker))) * 1000,
                    v_now);
            update jeet_internal.inbox i
               set begun = false, attempts = i.attempts + case when v_died then 1 else 0 end
             where i.task_id = v_task and i.begun;
            update jeet_internal.suspect s
               set begun = false, attempts = s.attempts + case when v_died then 1 else 0 end
             where s.task_id = v_task and s.begun;
            update jeet_internal.timer r
               set begun = false, attempts = r.attempts + case when v_died then 1 else 0 end
             where r.task_id = v_task and r.begun;
            return query
            select t.id, t.function_id, f.name, t.stage, t.partition, t.epoch, t.version, t.crashes,
                   (extract(epoch from t.ttl_hold) * 1000)::float8, f.on_error, s.inputs,
                   (select array_agg(c.next_offset order by c.stream_id) from jeet_internal.checkpoint c
                     where c.task_id = t.id and c.stream_id = any (s.inputs)),
                   s.outputs, round(extract(epoch from t.clock) * 1000)::float8,
                   (select array_agg(round(extract(epoch from c.watermark) * 1000)::float8 order by c.stream_id)
                      from jeet_internal.checkpoint c
                     where c.task_id = t.id and c.stream_id = any (s.inputs)),
                   f.draining,
                   (select array_agg(c.stop_at order by c.stream_id) from jeet_internal.checkpoint c
                     where c.task_id = t.id and c.stream_id = any (s.inputs)),
                   -- Streams that others read get nothing of what is only processed again.
                   case when exists (select from jeet_internal.rebuild r
                                      where r.function_id = f.id and r.phase <> 'settle' and not r.outputs)
                        then array(select m.id from jeet_internal.stream m where m.id = any (s.outputs) and not m.internal)
                        else '{}' end,
                   round(extract(epoch from t.clock_limit) * 1000)::float8
              from jeet_internal.task t
              join jeet_internal.function f on f.id = t.function_id
              join jeet_internal.stage s on s.function_id = t.function_id and s.version = t.version and s.stage = t.stage
             where t.id = v_task;
        end if;
    end loop;
end $$;
