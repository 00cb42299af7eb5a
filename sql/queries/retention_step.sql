-- The next thing to do to let go of old events of stream $1, if there is one.
select step, segment, reason, statement from jeet_internal.retention_step($1) where step is not null
