-- One change of functions at a time, to the end of the transaction.
select pg_advisory_xact_lock(%(class)s, %(number)s)
