select jeet_internal.sweep_savepoints($1::int, $2::int)
