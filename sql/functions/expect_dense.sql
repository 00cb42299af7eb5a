-- Offsets are dense: if fewer events were found than there are offsets, a segment went missing or is being dropped just now.
create or replace function jeet_internal.expect_dense(p_stream int, p_partition int, p_start bigint, p_end bigint, p_count int) returns void
language plpgsql stable as $$
begin
    if p_count <> p_end - p_start then
        raise exception 'stream % partition % holds % events of [%, %)', p_stream, p_partition, p_count, p_start, p_end
            using errcode = 'object_not_in_prerequisite_state';
    end if;
end $$;
revoke all on function jeet_internal.expect_dense(int, int, bigint, bigint, int) from public;
