-- How much state there is and how it grows, by collection: estimates that a maintenance job makes each ten minutes
-- (functions/measure_state.sql). Growth is from the last estimate that is at least an hour old, or the oldest, to the latest.
create or replace view jeet.state_size as
select f.name as function, c.name as collection, l.rows, l.bytes, l.error,
       (l.rows - b.rows) / h.hours as growth_rows_per_hour, (l.bytes - b.bytes) / h.hours as growth_bytes_per_hour,
       c.ttl, l.at
  from jeet_internal.collection c
  join jeet_internal.function f on f.id = c.function_id
 cross join lateral (select s.rows, s.bytes, s.error, s.at
                       from jeet_internal.state_size s
                      where s.function_id = c.function_id and s.collection_id = c.id
                      order by s.at desc
                      limit 1) l
 cross join lateral (select n.rows, n.bytes, n.at
                       from ((select s.rows, s.bytes, s.at
                                from jeet_internal.state_size s
                               where s.function_id = c.function_id and s.collection_id = c.id and s.at <= l.at - interval '1 hour'
                               order by s.at desc
                               limit 1)
                             union all
                             (select s.rows, s.bytes, s.at
                                from jeet_internal.state_size s
                               where s.function_id = c.function_id and s.collection_id = c.id
                               order by s.at
                               limit 1)) n
                      limit 1) b
 cross join lateral (select nullif(extract(epoch from l.at - b.at)::float8 / 3600, 0) as hours) h;

comment on view jeet.state_size is 'How much state each collection holds, and how fast it grows';
comment on column jeet.state_size.function is 'the function';
comment on column jeet.state_size.collection is 'state.<collection> in the function';
comment on column jeet.state_size.rows is 'entries, those included that have expired and are not swept yet; an estimate';
comment on column jeet.state_size.bytes is 'their size, indexes not included; an estimate';
comment on column jeet.state_size.error is 'relative standard error of the two; 0: all were counted';
comment on column jeet.state_size.growth_rows_per_hour is 'entries more each hour, over the last hour or two; null: it was measured once only';
comment on column jeet.state_size.growth_bytes_per_hour is 'bytes more each hour, likewise';
comment on column jeet.state_size.ttl is 'how long an entry lives; null: for ever';
comment on column jeet.state_size.at is 'when it was measured';
