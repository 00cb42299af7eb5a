-- Note where each task stands, if it has moved since the last note.
with recorded as (
    insert into jeet_internal.checkpoint_history (task_id, stream_id, next_offset, epoch)
    select c.task_id, c.stream_id, c.next_offset, t.epoch
      from jeet_internal.checkpoint c
      join jeet_internal.task t on t.id = c.task_id
      left join lateral (select h.next_offset
                           from jeet_internal.checkpoint_history h
                          where h.task_id = c.task_id and h.stream_id = c.stream_id
                          order by h.recorded_at desc
                          limit 1) last on true
     where last.next_offset is distinct from c.next_offset
        on conflict do nothing
    returning 1
)
select count(*) from recorded
