-- The tasks that are furthest behind.
select function, stage, partition, stream, lag, oldest_age, worker
  from jeet.lag where lag > 0 order by lag desc, function, stage, partition limit %(limit)s
