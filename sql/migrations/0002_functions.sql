-- Functions, their versions, and the tasks that run them.

create table jeet_internal.function (
    id          int generated always as identity primary key,
    name        text collate "C" not null unique,
    status      text not null default 'running' check (status in ('running', 'paused', 'failed')),
    version     int not null,                            -- the version that its tasks should run
    on_error    jsonb not null default '"dead-letter"',  -- or '"halt"', or {"retry": n, "backoff_ms": n}
    hold_ttl    boolean not null default true,           -- state's clock stands still while a task has no owner
    created_at  timestamptz not null default now(),
    deployed_at timestamptz not null default now()
);

create table jeet_internal.function_version (
    function_id int not null references jeet_internal.function on delete cascade,
    version     int not null,
    filename    text not null,
    source      text,                                    -- null when deployed from a .wasm
    bytecode    bytea not null,
    plugin_hash text not null,                           -- bytecode is tied to its plugin
    graph       jsonb not null,
    spec        jsonb not null,                          -- settings as merged from config and flags: source, sink, key, state, input, on_error, …
    digest      text not null,                           -- of source and settings: the same makes no new version
    deployed_at timestamptz not null default now(),
    primary key (function_id, version)
);

-- What each stage of a version reads and may write; a guest names outputs by their index in this list.
create table jeet_internal.stage (
    function_id int not null,
    version     int not null,
    stage       int not null,
    inputs      int[] not null,                          -- stream ids, ascending; equal partition counts
    outputs     int[] not null,                          -- stream ids; index 0 is the sink, or null without one
    primary key (function_id, version, stage),
    foreign key (function_id, version) references jeet_internal.function_version on delete cascade
);

create table jeet_internal.collection (
    function_id int not null references jeet_internal.function on delete cascade,
    id          smallint not null,                       -- 0, 1, … in the order in which the function first named them
    name        text collate "C" not null,
    ttl         interval,
    refresh     text not null default 'write' check (refresh in ('write', 'access')),
    primary key (function_id, id),
    unique (function_id, name)
);

-- A task's row is what commits are fenced by. Hot: every commit updates it, so no index on what changes.
create table jeet_internal.task (
    id            int generated always as identity primary key,
    function_id   int not null references jeet_internal.function on delete cascade,
    stage         int not null default 0,
    partition     int not null,
    epoch         bigint not null default 0,             -- rises with each takeover and each control change
    version       int not null,                          -- the version of the last acquire
    status        text not null default 'running' check (status in ('running', 'paused', 'halted')),
    halt_reason   text,
    worker_id     int,                                   -- the lease, as last taken; null when released
    backend_pid   int,                                   -- backend of the lease connection
    acquired_at   timestamptz,
    unowned_since timestamptz default now(),             -- null while owned
    ttl_hold      interval not null default '0',         -- how long state's clock has stood still
    crashes       int not null default 0,                -- takeovers from an owner that died, since the last commit
    committed_at  timestamptz,
    unique (function_id, stage, partition)
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);

create table jeet_internal.checkpoint (
    task_id      int not null references jeet_internal.task on delete cascade,
    stream_id    int not null references jeet_internal.stream,
    next_offset  bigint not null default 0,
    watermark    timestamptz,
    committed_at timestamptz,
    primary key (task_id, stream_id)
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
create index checkpoint_stream on jeet_internal.checkpoint (stream_id);

-- Where each task stood, now and then; kept for a while by a maintenance job.
create table jeet_internal.checkpoint_history (
    task_id     int not null references jeet_internal.task on delete cascade,
    stream_id   int not null,
    next_offset bigint not null,
    epoch       bigint not null,
    recorded_at timestamptz not null default now(),
    primary key (task_id, stream_id, recorded_at)
);
create index checkpoint_history_age on jeet_internal.checkpoint_history (recorded_at);

-- Events that are about to run alone after a failure: written before the run, so that one which kills the process is known.
create table jeet_internal.suspect (
    task_id   int not null references jeet_internal.task on delete cascade,
    stream_id int not null,
    "offset"  bigint not null,
    begun     boolean not null default false,            -- it runs, or its owner died while it did
    attempts  int not null default 0,                    -- times that its owner died while it ran
    primary key (task_id, stream_id, "offset")
);
