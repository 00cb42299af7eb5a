-- Keys that bring far more than their share, of all functions or of one.
select function, stage, stream, partition, key, share, error, sandbox_share, sandbox_error, since
  from jeet.hot_keys where %(function)s::text is null or function = %(function)s
 order by greatest(share, sandbox_share) desc, function, stage, partition, key;
