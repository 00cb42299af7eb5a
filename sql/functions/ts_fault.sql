-- Whether a time can be an event's: one that JavaScript's Date holds; null for null. Postgres' timestamps begin later than
-- Date does, so only the end is looked at.
-- Inlined: hence no fixed search_path; every name is qualified instead.
create or replace function jeet_internal.is_time(p_ts timestamptz) returns boolean
language sql immutable parallel safe as $$
    select p_ts operator(pg_catalog.>) '-infinity'::pg_catalog.timestamptz
       and p_ts operator(pg_catalog.<=) '275760-09-13 00:00:00+00'::pg_catalog.timestamptz
$$;

-- Why an event's time is refused, as 'code: what is wrong'; null if it is good or there is none.
create or replace function jeet_internal.ts_fault(p_ts timestamptz) returns text
language sql stable parallel safe set search_path = pg_catalog, pg_temp as $$
    select case when not jeet_internal.is_time(p_ts)
                then format('ts_range: has the time %s: use a finite one, up to the year 275760, where those of JavaScript end', p_ts) end
$$;
revoke all on function jeet_internal.ts_fault(timestamptz) from public;
