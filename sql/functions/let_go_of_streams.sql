-- Internal streams that a function needs no more get a name that is nobody's, and wait for maintenance to remove them:
-- that needs locks which a change of the function should not wait for.
create or replace function jeet_internal.let_go_of_streams(p_streams int[]) returns void language sql as $$
    update jeet_internal.stream s
       set name = '/' || s.id, dropped = true, max_lag = null, over_lag = false
     where s.id = any (p_streams) and s.internal and not s.dropped
$$;
