-- What every change runs under: a client that stalls inside it must not keep the tasks' rows, nor wait for ever.
select set_config('lock_timeout', %(lock_timeout)s, true), set_config('idle_in_transaction_session_timeout', '10s', true)
