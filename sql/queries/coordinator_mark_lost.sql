-- Mark workers lost. A silent one ($3 false) only if it has not sent a heartbeat since ($2): it may have come back.
-- None at all if it has left by itself meanwhile.
update jeet_internal.worker w
   set status = 'lost'
  from unnest($1::int[], $2::timestamptz[], $3::bool[]) as g(id, heartbeat_at, crashed)
 where w.id = g.id and w.status <> 'lost' and (g.crashed or w.heartbeat_at = g.heartbeat_at)
returning w.id
