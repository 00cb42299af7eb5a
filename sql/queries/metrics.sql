-- What a coordinator tells Prometheus of the whole: family, values of its labels, value. Sums over partitions.
select 'jeet_lag_events' as family, array[l.function, l.stage::text, l.stream] as labels, sum(l.lag)::float8 as value
  from jeet.lag l group by l.function, l.stage, l.stream
union all
select 'jeet_oldest_waiting_event_age_seconds', array[l.function, l.stage::text, l.stream], coalesce(extract(epoch from max(l.oldest_age)), 0)
  from jeet.lag l group by l.function, l.stage, l.stream
union all
select 'jeet_checkpoint_events', array[c.function, c.stage::text, c.stream], sum(c.next_offset) from jeet.checkpoints c
 group by c.function, c.stage, c.stream
union all
select 'jeet_stream_events', array[s.name], s.head from jeet.streams s
union all
select 'jeet_stream_bytes', array[s.name], s.bytes from jeet.streams s
union all
select 'jeet_stream_over_lag', array[s.name], s.over_lag::int from jeet.streams s
union all
select 'jeet_function_status', array[f.name, k.status], (f.status = k.status)::int
  from jeet.functions f cross join unnest(array['running', 'paused', 'failed']) k (status)
union all
select 'jeet_unowned_tasks', array[l.function, l.stage::text], count(distinct l.partition) filter (where l.worker is null)
  from jeet.lag l group by l.function, l.stage
union all
select 'jeet_open_dead_letters', array[f.name], count(d.*)
  from jeet.functions f left join jeet.dead_letters d on d.function = f.name and d.status = 'open' group by f.name
union all
select 'jeet_watermark_delay_seconds', array[w.function, w.stage::text], extract(epoch from clock_timestamp() - min(w.watermark))
  from jeet.watermarks w where w.watermark is not null group by w.function, w.stage
union all
select 'jeet_state_rows', array[s.function, s.collection], s.rows from jeet.state_size s
union all
select 'jeet_state_bytes', array[s.function, s.collection], s.bytes from jeet.state_size s
union all
select 'jeet_workers', array[k.status], count(w.*) from unnest(array['running', 'draining', 'lost']) k (status)
  left join jeet.workers w on w.status = k.status group by k.status
union all
select 'jeet_heartbeat_age_seconds', '{}', coalesce(extract(epoch from max(w.heartbeat_age)), 0) from jeet.workers w where w.status <> 'lost'
union all
select 'jeet_leader_heartbeat_age_seconds', '{}', extract(epoch from clock_timestamp() - l.heartbeat_at) from jeet_internal.leader l
union all
select 'jeet_table_bytes', array[t.name], t.bytes from jeet.table_health t
union all
select 'jeet_table_dead_rows', array[t.name], t.dead_rows from jeet.table_health t
union all
select x.family, '{}', x.value
  from jeet.database_health d
 cross join lateral (values ('jeet_oldest_transaction_age_seconds', coalesce(extract(epoch from d.oldest_age), 0)::float8),
                            ('jeet_notification_queue_ratio', d.notification_queue),
                            ('jeet_connections', d.connections),
                            ('jeet_transaction_ids_used', d.transaction_ids_used)) x (family, value)
