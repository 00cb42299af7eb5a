-- Everything of a function goes with its row: versions, tasks, checkpoints, state, dead letters, logs. Streams stay.
delete from jeet_internal.function where id = %(function)s
