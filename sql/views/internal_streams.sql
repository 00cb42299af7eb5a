create or replace view jeet.internal_streams as
select s.name, split_part(s.name, '/', 1) as function, s.partitions, s.retention, h.first_offset, h.head,
       jeet_internal.stream_bytes(s.id) as bytes
  from jeet_internal.stream s
  cross join lateral (select sum(h.first_offset)::bigint as first_offset, sum(h.head)::bigint as head
                        from jeet_internal.head h where h.stream_id = s.id) h
 where s.internal and not s.dropped;

comment on view jeet.internal_streams is 'Streams between the stages of a function, made and removed with it; offsets are sums over their partitions';
comment on column jeet.internal_streams.name is 'the stream: its function, then the name of the keyBy';
comment on column jeet.internal_streams.function is 'the function that it belongs to';
comment on column jeet.internal_streams.partitions is 'into how many partitions its events go, by key';
comment on column jeet.internal_streams.retention is 'how long events are kept after they were processed';
comment on column jeet.internal_streams.first_offset is 'lowest offsets still kept, summed: events already removed';
comment on column jeet.internal_streams.head is 'next offsets, summed: events ever handed on';
comment on column jeet.internal_streams.bytes is 'size on disk, indexes included';
