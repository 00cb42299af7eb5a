-- jeet.publish_lines: what jeet's own producer calls: events as NDJSON lines, joined by line breaks, with the same gate as
-- jeet.publish. key_path, id_path: where key and id are in each event. Says how many are written (repeated ones included) and
-- which lines (from 1) were refused, and why.
create or replace function jeet.publish_lines(
    stream text, lines text, key_path text[] default null, id_path text[] default null,
    out written int, out repeated int, out refused int[], out reasons text[])
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(cardinality(r.written), 0), r.repeated, coalesce(r.refused, '{}'), coalesce(r.reasons, '{}')
      from jeet_internal.publish_rows(stream, string_to_array(lines, E'\n'), lines, null, null, key_path, id_path) r
$$;
revoke all on function jeet.publish_lines(text, text, text[], text[]) from public;
comment on function jeet.publish_lines(text, text, text[], text[]) is
    'Append NDJSON lines to a stream; says how many are written and which lines were refused, and why';
