-- Note where streams and their readers stand.
select jeet_internal.sample_positions()
