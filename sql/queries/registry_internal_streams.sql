select s.id, s.name, s.partitions
  from jeet_internal.stream s
 where s.internal and not s.dropped and starts_with(s.name, %(prefix)s)
