-- Marks heads, so that the next append to each notifies; returns where they stand. Heads that an append holds just now are
-- left out: look at those again soon. A head that is marked already is only read: an append that takes the mark away
-- unseen by this statement commits, and notifies, after it.
with wanted as (
    select h.stream_id, h.partition, h.head, h.waiting
      from unnest($1::int[], $2::int[]) w (stream_id, partition)
      join jeet_internal.head h on h.stream_id = w.stream_id and h.partition = w.partition
), free as materialized (
    select h.stream_id, h.partition
      from jeet_internal.head h
      join wanted w on h.stream_id = w.stream_id and h.partition = w.partition and not w.waiting
     order by h.stream_id, h.partition
       for update of h skip locked
), marked as (
    update jeet_internal.head h set waiting = true
      from free f
     where h.stream_id = f.stream_id and h.partition = f.partition
    returning h.stream_id, h.partition, h.head
)
select stream_id, partition, head from marked
union all
select stream_id, partition, head from wanted where waiting
