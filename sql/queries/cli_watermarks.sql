select function, stage, partition, watermark, held_by, since, late, next_timer
  from jeet.watermarks where %(function)s::text is null or function = %(function)s
 order by function, stage, partition;
