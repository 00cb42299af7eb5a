-- jeet.publish_many: append many events to a stream, all locks at once; the fast way in from SQL. One row for each event, in
-- order (ord from 1): where it went, or why it was refused. The good ones are written whatever the others are.
create or replace function jeet.publish_many(stream text, events json[], keys text[] default null, ids text[] default null)
returns table (ord int, partition int, "offset" bigint, error text)
language sql security definer set search_path = pg_catalog, pg_temp as $$
    with done as materialized (
        select r.*
          from (select events::text[] as texts) e
         cross join lateral jeet_internal.publish_rows(stream, e.texts, array_to_string(e.texts, E'\n'), keys, ids, null, null) r
    )
    select w.n, w.partition, w.at, null from done, unnest(done.written, done.partitions, done.offsets) w (n, partition, at)
    union all
    select f.n, null, null, f.reason from done, unnest(done.refused, done.reasons) f (n, reason)
    order by 1
$$;
revoke all on function jeet.publish_many(text, json[], text[], text[]) from public;
comment on function jeet.publish_many(text, json[], text[], text[]) is
    'Append many events to a stream; one row for each: partition and offset, or the error. Good events are written whatever the others are; ids: repeats within 7 days are not written again';
