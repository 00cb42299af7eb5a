-- At most $3 redriven events of a task, and $4 bytes, but always one. Rare, so it may plan anew each time. The event as it
-- stands in the log; the dead letter's copy where retention took it.
with waiting as materialized (
    select d.id, d.stream_id, d."offset", d.key, d.attempts, d.event, d.failed_at, i.attempts as deaths, i.requested_at
      from jeet_internal.inbox i
      join jeet_internal.dead_letter d on d.id = i.dead_letter_id
     where i.task_id = $1::int
     order by i.requested_at, d."offset", d.id
     limit $3::int
)
, weighed as (
    select w.*, e.value as logged, e.key as logged_key, e.headers, e.ts, e.published_at,
           coalesce(pg_column_size(e.value), octet_length(w.event)) as bytes  -- neither reads what is stored out of line
      from waiting w
      left join jeet_internal.event e on e.stream_id = w.stream_id and e.partition = $2::int and e."offset" = w."offset"
), summed as (
    select w.*, sum(w.bytes) over (order by w.requested_at, w."offset", w.id) - w.bytes as before from weighed w
)
select s.id, s.stream_id, s."offset", coalesce(s.logged_key, s.key) as key, s.attempts, s.deaths,
       replace(coalesce(s.logged::text, s.event), E'\n', ' ') as value, s.headers::text as headers,
       (extract(epoch from case when jeet_internal.is_time(s.ts) then s.ts else coalesce(s.published_at, s.failed_at) end) * 1000)::bigint as timestamp_ms,
       (extract(epoch from clock_timestamp()) * 1000)::float8 as now_ms
  from summed s
 where s.before = 0 or s.before + s.bytes <= $4::bigint
 order by s.requested_at, s."offset", s.id
