-- Why a rebuild must not begin its replay, or null: what it would miss for good is gone since the command, or came up since.
create or replace function jeet_internal.why_end_rebuild(p_one jeet_internal.rebuild) returns text language plpgsql stable as $$
declare
    v_name    text := (select f.name from jeet_internal.function f where f.id = p_one.function_id);
    v_lost    record;
    v_letters bigint := jeet_internal.letters_in_the_way(p_one.function_id);
begin
    if v_letters > 0 and not p_one.outputs then
        return format('%s dead letters of %s are open: should their events go well this time, what they make would not be sent; '
                      'jeet dlq redrive or drop them, then jeet rebuild %2$s again', v_letters, v_name);
    end if;
    select s.name as stream, t.partition, h.first_offset into v_lost
      from jeet_internal.task t
      join jeet_internal.checkpoint c on c.task_id = t.id and c.stop_at is not null
      join jeet_internal.stream s on s.id = c.stream_id
      join jeet_internal.head h on h.stream_id = c.stream_id and h.partition = t.partition
     where t.function_id = p_one.function_id and h.first_offset > 0
     order by s.name, t.partition
     limit 1;
    if found and not p_one.partial then
        return format('max_bytes of %s has taken the first %s events of partition %s since the command; jeet rebuild %s --partial goes without them',
                      v_lost.stream, v_lost.first_offset, v_lost.partition, v_name);
    end if;
    return null;
end $$;
