-- Where partitions stand, of any number of streams.
select h.stream_id, h.partition, h.head
  from unnest($1::int[], $2::int[]) w (stream_id, partition)
  join jeet_internal.head h on h.stream_id = w.stream_id and h.partition = w.partition
