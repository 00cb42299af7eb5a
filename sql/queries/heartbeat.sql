-- No row: somebody has declared this incarnation lost, and it must stop at once.
update jeet_internal.worker set heartbeat_at = clock_timestamp(), status = case when %(draining)s then 'draining' else status end
 where id = %(worker)s and status <> 'lost' returning id
