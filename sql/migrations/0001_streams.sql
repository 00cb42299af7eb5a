-- Streams: what they are, where each partition stands, and the log itself.

create table jeet_internal.stream (
    id           int generated always as identity primary key,
    name         text collate "C" not null unique,
    partitions   int not null check (partitions between 1 and 4096),
    key          text,                                   -- path of the key in the event ('userId', 'user.id'); null: no key of its own
    retention    interval,                               -- null: kept for ever
    max_bytes    bigint check (max_bytes > 0),           -- may override checkpoints, loudly
    max_lag      bigint check (max_lag > 0),             -- publishers are refused while over_lag
    over_lag     boolean not null default false,         -- refreshed each second by the coordinator
    segment_size bigint not null default 500000 check (segment_size > 0),  -- offsets of each partition in one segment of the log
    internal     boolean not null default false,         -- joins two stages of a function; hidden from lists
    in_cycle     boolean not null default false,         -- functions lead from it back to it: tasks never wait for its lag; refreshed by control changes
    created_at   timestamptz not null default now()
);

-- One row a partition; its lock orders all appends to that partition. Hot: no index on what changes.
create table jeet_internal.head (
    stream_id    int not null references jeet_internal.stream on delete cascade,
    partition    int not null,
    head         bigint not null default 0,              -- the offset that the next event will get
    first_offset bigint not null default 0,              -- lowest offset that is still kept
    waiting      boolean not null default false,         -- a consumer has run dry: the next append notifies
    barred       bigint,                                 -- number of a segment that is being dropped: no append may enter it
    primary key (stream_id, partition)
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);

-- The log. LIST by stream (event_<stream>), then RANGE by offset (segments event_<stream>_<n>, made ahead; no default
-- partition). Segment n of a stream holds the offsets [n * segment_size, (n + 1) * segment_size) of all its partitions.
-- Values above 2 KB are stored out of line but not compressed: so pg_column_size tells the length of a value without
-- reading it, and a batch is bounded by bytes before it is read.
create table jeet_internal.event (
    stream_id    int not null,
    partition    int not null,
    "offset"     bigint not null,
    published_at timestamptz not null default clock_timestamp(),
    ts           timestamptz,                            -- event time if the publisher gave one
    key          text collate "C",
    headers      jsonb,
    value        json storage external not null,         -- the text as published, line breaks outside strings made spaces
    primary key (stream_id, partition, "offset")
) partition by list (stream_id);

-- Idempotent publish: looked up under the head locks, before offsets are taken.
create table jeet_internal.publish_id (
    stream_id    int not null references jeet_internal.stream on delete cascade,
    id           text collate "C" not null,
    partition    int not null,
    "offset"     bigint not null,
    expires_at   timestamptz not null,
    primary key (stream_id, id)
);
create index publish_id_expiry on jeet_internal.publish_id (expires_at);

-- What became of each block of lines that a producer sent under a token, so that sending one again after a lost connection
-- writes nothing twice and gives the same answer.
create table jeet_internal.publish_block (
    token        uuid primary key,
    written      int,                                    -- null: the transaction that publishes it has not ended
    repeated     int,
    refused      int[],
    reasons      text[],
    expires_at   timestamptz not null default clock_timestamp() + interval '1 day'
);
create index publish_block_expiry on jeet_internal.publish_block (expires_at);
