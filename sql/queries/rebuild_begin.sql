-- From here on a function is built again: its sources stand still where they are. Inside a change that has fenced its tasks.
with begun as (
    insert into jeet_internal.rebuild (function_id, stages, outputs, partial)
    values (%(function)s, %(stages)s::int[], %(outputs)s, %(partial)s)
), anew as (
    update jeet_internal.function f set rebuild_failed = null where f.id = %(function)s and f.rebuild_failed is not null
)
update jeet_internal.checkpoint c set stop_at = c.next_offset
  from jeet_internal.task t, jeet_internal.stream s
 where t.function_id = %(function)s and c.task_id = t.id and s.id = c.stream_id and not s.internal
