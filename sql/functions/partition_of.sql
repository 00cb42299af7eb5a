-- The partition that a key belongs to: CRC-32 of its UTF-8 bytes, modulo the number of partitions.
-- The same in Python: zlib.crc32(key.encode()) % partitions. No normalisation: é as one or two code points are two keys.

-- CRC-32 (IEEE 802.3), half a byte at a time, for servers without a built-in one; on all of them, so that tests can compare.
create or replace function jeet_internal.crc32_portable(p_bytes bytea) returns bigint
language plpgsql immutable strict parallel safe as $$
declare
    v_table constant bigint[] := array[
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c];
    v_crc bigint := 0xffffffff;
begin
    for i in 0 .. octet_length(p_bytes) - 1 loop
        v_crc := v_crc # get_byte(p_bytes, i);
        v_crc := (v_crc >> 4) # v_table[1 + (v_crc & 15)];
        v_crc := (v_crc >> 4) # v_table[1 + (v_crc & 15)];
    end loop;
    return v_crc # 0xffffffff;
end $$;

-- Inlined wherever it is called, six times as fast as a call: hence no fixed search_path (every name is qualified) and only
-- `stable`, as convert_to is.
do $choose$
begin
    if current_setting('server_version_num')::int >= 180000 then
        create or replace function jeet.partition_of(p_key text, p_partitions int) returns int
        language sql stable strict parallel safe as
        $$ select (pg_catalog.crc32(pg_catalog.convert_to(p_key, 'UTF8')) operator(pg_catalog.%) p_partitions)::pg_catalog.int4 $$;
    else
        create or replace function jeet.partition_of(p_key text, p_partitions int) returns int
        language sql stable strict parallel safe as
        $$ select (jeet_internal.crc32_portable(pg_catalog.convert_to(p_key, 'UTF8')) operator(pg_catalog.%) p_partitions)::pg_catalog.int4 $$;
    end if;
end $choose$;
comment on function jeet.partition_of(text, int) is 'The partition of a key: CRC-32 of its UTF-8 bytes modulo the number of partitions';
