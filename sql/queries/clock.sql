-- The clock that decides.
select clock_timestamp()
