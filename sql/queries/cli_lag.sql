select function, stage, stream, partition, head, next_offset, lag, oldest_age, worker
  from jeet.lag where %(function)s::text is null or function = %(function)s
 order by function, stage, stream, partition;
