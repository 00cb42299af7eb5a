-- What a draining function still has to use up.
select stage, events, timers, letters, halted from jeet_internal.drain_left(%(function)s)
