-- Keys in the order in which functions enumerate them; one more than asked for tells that there are more.
select key, value, partition, expires_at, updated_at
  from jeet.state where function = %(function)s and collection = %(collection)s
 order by key collate "C", stage, partition limit %(limit)s;
