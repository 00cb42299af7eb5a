-- Rare, so it may plan anew each time. The event as it stands in the log; the dead letter's copy where retention took it.
select d.id, d.stream_id, d."offset", coalesce(e.key, d.key) as key, d.attempts,
       replace(coalesce(e.value::text, d.event), E'\n', ' ') as value, e.headers::text as headers,
       (extract(epoch from coalesce(e.ts, e.published_at, d.failed_at)) * 1000)::bigint as timestamp_ms,
       (extract(epoch from clock_timestamp()) * 1000)::float8 as now_ms
  from jeet_internal.inbox i
  join jeet_internal.dead_letter d on d.id = i.dead_letter_id
  left join jeet_internal.event e on e.stream_id = d.stream_id and e.partition = $2::int and e."offset" = d."offset"
 where i.task_id = $1::int
 order by i.requested_at, d."offset", d.id
 limit $3::int
