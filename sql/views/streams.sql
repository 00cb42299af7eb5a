create or replace view jeet.streams as
select s.name, s.partitions, s.key, s.retention, h.first_offset, h.head, jeet_internal.stream_bytes(s.id) as bytes,
       s.max_lag, s.over_lag
  from jeet_internal.stream s
  cross join lateral (select sum(h.first_offset)::bigint as first_offset, sum(h.head)::bigint as head
                        from jeet_internal.head h where h.stream_id = s.id) h
 where not s.internal;

comment on view jeet.streams is 'Streams; offsets are sums over their partitions';
comment on column jeet.streams.name is 'the stream';
comment on column jeet.streams.partitions is 'into how many partitions its events go, by key';
comment on column jeet.streams.key is 'path of the key in each event; null: given by the publisher, or none';
comment on column jeet.streams.retention is 'how long events are kept at least; null: for ever';
comment on column jeet.streams.first_offset is 'lowest offsets still kept, summed: events already removed';
comment on column jeet.streams.head is 'next offsets, summed: events ever published';
comment on column jeet.streams.bytes is 'size on disk, indexes included';
comment on column jeet.streams.max_lag is 'publishers are refused while a consumer is further behind than this many events; null: no limit';
comment on column jeet.streams.over_lag is 'publishers are being refused now';
