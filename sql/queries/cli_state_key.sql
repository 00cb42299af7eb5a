select key, value, partition, expires_at, updated_at
  from jeet.state where function = %(function)s and collection = %(collection)s and key = %(key)s
 order by stage, partition;
