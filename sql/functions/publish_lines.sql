-- jeet.publish_lines: what jeet's own producer calls: events as NDJSON lines, joined by line breaks, through the same gate as
-- jeet.publish. key_path and id_path tell where key and id are in each event. Says how many are written (repeated ones
-- included) and which lines (from 1) were refused, and why.
-- A call that repeats a token within a day writes nothing and gives the first answer: a producer whose connection was lost
-- sends its block again without knowing whether it had arrived.
create or replace function jeet.publish_lines(
    stream text, lines text, key_path text[] default null, id_path text[] default null, token uuid default null,
    out written int, out repeated int, out refused int[], out reasons text[])
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    if token is not null then
        -- While another session publishes this block, this waits for it to end.
        insert into jeet_internal.publish_block (token) values (publish_lines.token) on conflict (token) do nothing;
        if not found then
            select b.written, b.repeated, b.refused, b.reasons into written, repeated, refused, reasons
              from jeet_internal.publish_block b where b.token = publish_lines.token;
            return;
        end if;
    end if;
    select coalesce(cardinality(r.written), 0), r.repeated, coalesce(r.refused, '{}'), coalesce(r.reasons, '{}')
      into written, repeated, refused, reasons
      from jeet_internal.publish_rows(publish_lines.stream, string_to_array(publish_lines.lines, E'\n'), publish_lines.lines, null, null,
                                      publish_lines.key_path, publish_lines.id_path) r;
    if token is not null then
        update jeet_internal.publish_block b
           set written = publish_lines.written, repeated = publish_lines.repeated, refused = publish_lines.refused, reasons = publish_lines.reasons
         where b.token = publish_lines.token;
        -- Each block takes two old ones away, so the table needs no other upkeep.
        delete from jeet_internal.publish_block b
         where b.token in (select o.token from jeet_internal.publish_block o where o.expires_at < clock_timestamp()
                            order by o.expires_at limit 2 for update skip locked);
    end if;
end $$;
revoke all on function jeet.publish_lines(text, text, text[], text[], uuid) from public;
comment on function jeet.publish_lines(text, text, text[], text[], uuid) is
    'Append NDJSON lines to a stream; says how many are written and which lines were refused, and why';
