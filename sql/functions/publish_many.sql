-- jeet.publish_many: append many events to a stream, all locks at once; the fast way in from SQL. One row for each event, in
-- order (ord from 1): where it went, or why it was refused. The good ones are written whatever the others are.
-- jeet.publish_texts is the same for events as text, where one that is not JSON is refused like any other. (A name of its own:
-- with two types of array under one name, drivers that leave types to the server would find it ambiguous.)
create or replace function jeet.publish_texts(stream text, events text[], keys text[] default null, ids text[] default null)
returns table (ord int, partition int, "offset" bigint, error text)
language sql security definer set search_path = pg_catalog, pg_temp as $$
    with done as materialized (
        select * from jeet_internal.publish_rows(stream, events, array_to_string(events, E'\n'), keys, ids, null, null)
    )
    select w.n, w.partition, w.at, null from done, unnest(done.written, done.partitions, done.offsets) w (n, partition, at)
    union all
    select f.n, null, null, f.reason from done, unnest(done.refused, done.reasons) f (n, reason)
    order by 1
$$;
revoke all on function jeet.publish_texts(text, text[], text[], text[]) from public;
comment on function jeet.publish_texts(text, text[], text[], text[]) is 'As publish_many, for events given as text';

create or replace function jeet.publish_many(stream text, events json[], keys text[] default null, ids text[] default null)
returns table (ord int, partition int, "offset" bigint, error text)
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select * from jeet.publish_texts(stream, events::text[], keys, ids)
$$;
revoke all on function jeet.publish_many(text, json[], text[], text[]) from public;
comment on function jeet.publish_many(text, json[], text[], text[]) is
    'Append many events to a stream; one row for each: partition and offset, or the error. Good events are written whatever the others are; ids: repeats within 7 days are not written again';
