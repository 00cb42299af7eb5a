-- jeet.publish: append one event to a stream, inside the caller's own transaction; returns where it went.
-- Three types of event, so that a literal, a json and a jsonb value all resolve without a cast.
-- A transaction that publishes several times takes the locks of several partitions one after another: two of them may
-- deadlock, and one gets 40P01, which is for retrying. jeet.publish_many takes all locks at once and never does.
create or replace function jeet.publish(
    stream text, event text, key text default null, headers jsonb default null, ts timestamptz default null, id text default null,
    out partition int, out "offset" bigint)
language sql security definer set search_path = pg_catalog, pg_temp as
$$ select * from jeet_internal.publish_one(stream, event, key, headers, ts, id) $$;

create or replace function jeet.publish(
    stream text, event json, key text default null, headers jsonb default null, ts timestamptz default null, id text default null,
    out partition int, out "offset" bigint)
language sql security definer set search_path = pg_catalog, pg_temp as
$$ select * from jeet_internal.publish_one(stream, event::text, key, headers, ts, id) $$;

create or replace function jeet.publish(
    stream text, event jsonb, key text default null, headers jsonb default null, ts timestamptz default null, id text default null,
    out partition int, out "offset" bigint)
language sql security definer set search_path = pg_catalog, pg_temp as
$$ select * from jeet_internal.publish_one(stream, event::text, key, headers, ts, id) $$;

revoke all on function jeet.publish(text, text, text, jsonb, timestamptz, text) from public;
revoke all on function jeet.publish(text, json, text, jsonb, timestamptz, text) from public;
revoke all on function jeet.publish(text, jsonb, text, jsonb, timestamptz, text) from public;
comment on function jeet.publish(text, text, text, jsonb, timestamptz, text) is
    'Append one event (JSON text) to a stream; returns (partition, offset). key: unless the stream has a key path; ts: time of the event; id: a repeat within 7 days is not written again';
comment on function jeet.publish(text, json, text, jsonb, timestamptz, text) is 'Append one event to a stream; returns (partition, offset)';
comment on function jeet.publish(text, jsonb, text, jsonb, timestamptz, text) is 'Append one event to a stream; returns (partition, offset)';
