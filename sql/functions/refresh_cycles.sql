-- Marks the streams from which functions lead back to themselves: a task must not wait for the lag of such a stream, as
-- what it waits for may be itself. Called by every change of functions.
create or replace function jeet_internal.refresh_cycles() returns void language sql as $$
    with recursive edge as (
        select distinct i.id as a, o.id as b
          from jeet_internal.function f
          join jeet_internal.stage g on g.function_id = f.id and g.version = f.version
         cross join unnest(g.inputs) i(id)
         cross join unnest(g.outputs) o(id)
         where o.id is not null
    ), reach as (
        select a, b from edge
        union
        select r.a, e.b from reach r join edge e on e.a = r.b
    ), marked as (
        select s.id, exists (select from reach r where r.a = s.id and r.b = s.id) as in_cycle from jeet_internal.stream s
    )
    update jeet_internal.stream s set in_cycle = m.in_cycle from marked m where m.id = s.id and s.in_cycle <> m.in_cycle
$$;
