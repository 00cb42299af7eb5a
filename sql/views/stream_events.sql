-- The log, readable. The empty branch of the UNION ALL keeps the planner from joining in any other order: it must find
-- the stream first and then visit that stream's segments alone (a hash join would read the logs of all streams), while
-- conditions on partition and offset still reach the index.
create or replace view jeet.stream_events as
select s.name as stream, e.partition, e."offset", e.key, e.value, e.headers, e.published_at, e.ts
  from jeet_internal.stream s
 cross join lateral (select * from jeet_internal.event where stream_id = s.id
                     union all
                     select * from jeet_internal.event where false) e;

comment on view jeet.stream_events is 'Events in the log; name the stream: where stream = ''orders''';
comment on column jeet.stream_events.stream is 'the stream';
comment on column jeet.stream_events.partition is 'the partition, from 0';
comment on column jeet.stream_events."offset" is 'position in the partition: dense, from 0, in commit order';
comment on column jeet.stream_events.key is 'the key that chose the partition; null: none';
comment on column jeet.stream_events.value is 'the event, as the text that was published';
comment on column jeet.stream_events.headers is 'what the publisher said about it';
comment on column jeet.stream_events.published_at is 'when it was appended';
comment on column jeet.stream_events.ts is 'the time of the event, if the publisher gave one';
