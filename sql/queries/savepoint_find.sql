-- A savepoint of a function; the row is locked, so that nobody removes what it holds.
select p.id, p.version, p.taken_at, p.why, p.entries, p.timers, p.events, p.letters
  from jeet_internal.savepoint p
 where p.function_id = %(function)s and p.id = %(savepoint)s and not p.dropped
   for share
