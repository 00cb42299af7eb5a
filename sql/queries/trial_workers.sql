-- Workers and the partitions they hold.
select w.id, w.pid, array_agg(l.partition order by l.partition) filter (where l.partition is not null) as partitions
  from jeet.workers w left join jeet.leases l on l.worker = w.id
 where w.status = 'running' group by w.id, w.pid order by w.id;
