-- Every table as it stands: the page to read first. It is never run by Jeet itself, which goes through migrations/; a
-- test proves that they arrive here. Change both.
--
-- One event, in tables:  stream, head, event        the log: where the next event goes, and the events
--                        function … task            who processes what; task is what commits are fenced by
--                        checkpoint, state, timer   what a commit moves, together with the outputs in the log
--                        dead_letter, inbox, log    what operators work with
--                        task_figures …             what tasks did and where streams stood, for people to read
-- The tables of pgqueuer, which runs maintenance jobs, are in a schema of their own: migrations/0005_pgqueuer.sql.
-- What people use is in schema jeet: views/ and functions/; what jeet.diagnosis tells is in rules/.

-- What a migration needs before the first one: the two schemas and the list of what was applied.
create schema if not exists jeet;
create schema if not exists jeet_internal;
create table if not exists jeet_internal.migration (
    name       text collate "C" primary key,  -- a migration, 'functions' for all functions and views together, or 'contract'
    digest     text not null,                 -- SHA-256 of the text applied; of 'contract' its number (jeet/db/migrate.py)
    applied_at timestamptz not null default now()
);

-- ----------------------------------------------------------------------------
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
    created_at   timestamptz not null default now(),
    dropped      boolean not null default false          -- an internal one that its function has let go of: maintenance removes it
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

-- ----------------------------------------------------------------------------
-- Functions, their versions, and the tasks that run them.

create table jeet_internal.function (
    id          int generated always as identity primary key,
    name        text collate "C" not null unique,
    status      text not null default 'running' check (status in ('running', 'paused', 'failed')),
    version     int not null,                            -- the version that its tasks should run
    on_error    jsonb not null default '"dead-letter"',  -- or '"halt"', or {"retry": n, "backoff_ms": n}
    hold_ttl    boolean not null default true,           -- state's clock stands still while a task has no owner
    created_at  timestamptz not null default now(),
    deployed_at timestamptz not null default now(),
    draining    boolean not null default false,          -- sources stand still, event time is at its end: another graph is to take over
    rebuild_failed text                                  -- why its last rebuild ended before its time, with nothing changed
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
    plan        jsonb,                                   -- what of the graph runs here (jeet/plan.py); null: all of it
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
    clock         timestamptz,                           -- event time that it has reached: what is late, and what is due; never falls
    watermark     timestamptz,                           -- the same once all timers due by then have fired: what later stages go by
    watermark_at  timestamptz,                           -- when the watermark moved last
    late          bigint not null default 0,             -- events that came after all their windows had closed
    clock_limit   timestamptz,                           -- while it is built again: how far its clock may come; '-infinity': it had none
    unique (function_id, stage, partition)
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);

create table jeet_internal.checkpoint (
    task_id      int not null references jeet_internal.task on delete cascade,
    stream_id    int not null references jeet_internal.stream,
    next_offset  bigint not null default 0,
    watermark    timestamptz,                            -- event time up to which everything of this input is believed seen
    committed_at timestamptz,
    stop_at      bigint,                                 -- while the function is built again: where this source is read no further
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

-- ----------------------------------------------------------------------------
-- Keyed state: JSON values by collection and key, owned by one task.

create table jeet_internal.state (
    task_id       int not null references jeet_internal.task on delete cascade,
    collection_id smallint not null,
    key           text collate "C" not null,
    value         json not null,
    expires_at    timestamptz,                           -- expired means expires_at + task.ttl_hold <= database clock
    updated_at    timestamptz not null default now(),
    version       int,                                   -- of the function, when it was written; null: before that was kept
    primary key (task_id, collection_id, key)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
-- By task, as each task's clock has its own hold: the sweep reads exactly what has expired.
create index state_expiry on jeet_internal.state (task_id, expires_at) where expires_at is not null;

-- What a task is to do at some time, by operator and key: windows that close, what a function asked for.
create table jeet_internal.timer (
    task_id  int not null references jeet_internal.task on delete cascade,
    operator text collate "C" not null,                  -- the operator of the graph that it belongs to
    key      text collate "C" not null,
    name     text collate "C" not null,
    at       timestamptz not null,
    wall     boolean not null,                           -- compared with the database clock; else with the task's clock
    begun    boolean not null default false,             -- it runs, or its owner died while it did
    attempts int not null default 0,                     -- times that its owner died while it ran
    primary key (task_id, operator, key, name)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
-- In two, so that a timer is never looked up by its task in them: which one to use is not left to what the planner believes.
create index timer_event on jeet_internal.timer (task_id, at) where not wall;
create index timer_wall on jeet_internal.timer (task_id, at) where wall;
create index timer_begun on jeet_internal.timer (task_id) where begun;

-- ----------------------------------------------------------------------------
-- Savepoints.

-- A function as it stood at one moment, to go back to. What it holds is copied, so it does not depend on what becomes of the
-- tasks and of the streams between its stages; of its sources it holds positions only.
create table jeet_internal.savepoint (
    id          int generated always as identity primary key,
    function_id int references jeet_internal.function on delete set null,  -- null: it has gone with its function
    version     int not null,
    taken_at    timestamptz not null,
    why         text not null,                           -- what it was taken for
    automatic   boolean not null,                        -- by Jeet, before a change: only the newest ones are kept
    entries     bigint not null,                         -- of state
    timers      bigint not null,
    events      bigint not null,                         -- under way between stages
    letters     bigint not null,                         -- open dead letters
    bytes       bigint not null,
    dropped     boolean not null default false           -- nobody sees it any more: maintenance removes what it holds
);
create index savepoint_function on jeet_internal.savepoint (function_id, id);

create table jeet_internal.savepoint_task (
    savepoint_id int not null references jeet_internal.savepoint on delete cascade,
    task_id      int not null,                           -- as it was called then: what else the savepoint holds goes by it
    stage        int not null,
    partition    int not null,
    ttl_hold     interval not null,
    clock        timestamptz,
    watermark    timestamptz,
    late         bigint not null,
    primary key (savepoint_id, task_id)
);

create table jeet_internal.savepoint_checkpoint (
    savepoint_id int not null references jeet_internal.savepoint on delete cascade,
    task_id      int not null,
    stream       text collate "C" not null,              -- by name: those between stages may be made anew
    stream_id    int not null,
    internal     boolean not null,
    next_offset  bigint not null,
    watermark    timestamptz,
    head         bigint not null,                        -- of an internal one: what lies before it and is not processed is held
    primary key (savepoint_id, task_id, stream)
);

-- Large, and read and removed only as a whole: no key and no reference, so that copying costs little more than writing.
create table jeet_internal.savepoint_state (
    savepoint_id  int not null,
    task_id       int not null,
    collection_id smallint not null,
    key           text collate "C" not null,
    value         json not null,
    expires_at    timestamptz,
    updated_at    timestamptz not null,
    version       int
);
create index savepoint_state_of on jeet_internal.savepoint_state (savepoint_id);

create table jeet_internal.savepoint_timer (
    savepoint_id int not null,
    task_id      int not null,
    operator     text collate "C" not null,
    key          text collate "C" not null,
    name         text collate "C" not null,
    at           timestamptz not null,
    wall         boolean not null
);
create index savepoint_timer_of on jeet_internal.savepoint_timer (savepoint_id);

-- What stages had handed on and later ones had not processed.
create table jeet_internal.savepoint_event (
    savepoint_id int not null,
    stream       text collate "C" not null,
    partition    int not null,
    "offset"     bigint not null,
    ts           timestamptz not null,
    key          text collate "C",
    headers      jsonb,
    value        json storage external not null
);
create index savepoint_event_of on jeet_internal.savepoint_event (savepoint_id, stream, partition, "offset");

-- Dead letters that were open.
create table jeet_internal.savepoint_letter (
    savepoint_id int not null,
    id           bigint not null,                        -- as it is called as long as the function has it
    task_id      int not null,
    stream_id    int,
    "offset"     bigint not null,
    key          text,
    event        text not null,
    error        text not null,
    stack        text not null,
    state_key    text,
    attempts     int not null,
    version      int not null,
    failed_at    timestamptz not null
);
create index savepoint_letter_of on jeet_internal.savepoint_letter (savepoint_id);

-- A function whose state is built again from its sources (jeet rebuild).
create table jeet_internal.rebuild (
    function_id int primary key references jeet_internal.function on delete cascade,
    phase       text not null default 'settle' check (phase in ('settle', 'replay', 'close')),  -- advance_rebuilds tells what they are
    stages      int[] not null,                          -- each after those that write what it reads
    closing     int not null default 0,                  -- how many of these have come to the event time that they had
    outputs     boolean not null,                        -- what is made of events that are processed again is sent again
    begun_at    timestamptz not null default clock_timestamp(),
    partial     boolean not null default false           -- it may begin with the first events that there are, though others are gone
);

-- Timers by the clock on the wall that were pending when it began its replay: they fire once it is over, in place of what the
-- replay set.
create table jeet_internal.kept_timer (
    task_id  int not null references jeet_internal.task on delete cascade,
    operator text collate "C" not null,
    key      text collate "C" not null,
    name     text collate "C" not null,
    at       timestamptz not null,
    begun    boolean not null,                           -- as in timer, as are the attempts
    attempts int not null,
    primary key (task_id, operator, key, name)
);

-- ----------------------------------------------------------------------------
-- What operators work with: workers, assignments, dead letters, logs.

create table jeet_internal.worker (
    id            int generated always as identity primary key,  -- one incarnation; also its liveness lock's key
    incarnation   uuid not null unique default gen_random_uuid(),
    process       uuid not null default gen_random_uuid(),  -- the same for all incarnations of one process: tells a death from a lost session
    host          text not null,
    pid           int not null,
    version       text not null,
    plugin_hash   text,
    status        text not null default 'running' check (status in ('running', 'draining', 'lost')),
    backend_pid   int not null,                          -- the lease connection: ended at a takeover, by pid and start
    backend_start timestamptz not null,
    started_at    timestamptz not null default clock_timestamp(),
    heartbeat_at  timestamptz not null default clock_timestamp()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- The coordinator that leads. The advisory lock elects; this row lets a standby end a leader that has frozen.
create table jeet_internal.leader (
    role          text primary key default 'coordinator' check (role = 'coordinator'),
    host          text not null,
    pid           int not null,
    backend_pid   int not null,
    backend_start timestamptz not null,
    since         timestamptz not null default clock_timestamp(),
    heartbeat_at  timestamptz not null default clock_timestamp()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Who should run a task; the lease (task.worker_id, task.epoch) says who does.
create table jeet_internal.assignment (
    task_id     int primary key references jeet_internal.task on delete cascade,
    worker_id   int not null references jeet_internal.worker on delete cascade,
    assigned_at timestamptz not null default clock_timestamp()
);
create index assignment_worker on jeet_internal.assignment (worker_id);

create table jeet_internal.dead_letter (
    id         bigint generated always as identity primary key,
    task_id    int not null references jeet_internal.task on delete cascade,
    stream_id  int,                                      -- null: a timer
    "offset"   bigint not null,                          -- of a timer: below 0, and no other's
    key        text,
    event      text not null,                            -- made safe and cut with a mark: must never fail to insert
    error      text not null,
    stack      text not null default '',
    state_key  text,
    attempts   int not null default 1,
    version    int not null,
    failed_at  timestamptz not null default clock_timestamp(),
    status     text not null default 'open' check (status in ('open', 'redriven', 'dropped')),
    unique (task_id, stream_id, "offset")
);

-- Redriven dead letters, consumed by the failing task in its fenced commit; no other reader of the stream sees them.
create table jeet_internal.inbox (
    task_id        int not null references jeet_internal.task on delete cascade,
    dead_letter_id bigint not null references jeet_internal.dead_letter on delete cascade,
    requested_at   timestamptz not null default clock_timestamp(),
    begun          boolean not null default false,       -- it runs, or its owner died while it did
    attempts       int not null default 0,               -- times that its owner died while it ran
    primary key (task_id, dead_letter_id)
);

create table jeet_internal.log (
    id          bigint generated always as identity primary key,
    function_id int not null references jeet_internal.function on delete cascade,
    version     int not null,
    partition   int not null,
    "offset"    bigint,
    level       text not null,
    message     text not null,
    logged_at   timestamptz not null default clock_timestamp()
);
create index log_function on jeet_internal.log (function_id, id);
create index log_age on jeet_internal.log (logged_at);

-- ----------------------------------------------------------------------------
-- Figures: what tasks did, where streams stood, how large state is, who took which task from whom. Written aside from the
-- data path and read by people, jeet doctor and jeet top; nothing depends on them. No foreign keys to tasks and streams:
-- checking one would touch their hot rows. What is left of a deleted task goes with its time.

create table jeet_internal.task_figures (
    task_id        int not null,
    span_s         smallint not null check (span_s in (60, 3600)),  -- minutes; rolled up into hours after a while
    at             timestamptz not null,                 -- start of the minute or hour
    since          timestamptz not null,                 -- these are sums over the time [since, until)
    until          timestamptz not null,
    events         bigint not null,
    outputs        bigint not null,
    bytes          bigint not null,                      -- of the events
    batches        bigint not null,
    cut            bigint not null,                      -- batches that ended early, as their time slice was over
    errors         bigint not null,                      -- batches that failed or were undone
    dead_letters   bigint not null,
    cpu_s          float8 not null,                      -- CPU time of the guest's thread
    sandbox_s      float8 not null,                      -- time in guest calls, reading of state left out
    fetch_s        float8 not null,                      -- time of reading events
    state_s        float8 not null,                      -- time of reading state
    commit_s       float8 not null,                      -- time of committing
    state_requests bigint not null,                      -- times that a guest asked for state
    state_misses   bigint not null,                      -- keys that were not in the guest's cache
    instances      bigint not null,                      -- that were made
    recycled       bigint not null,                      -- of them, those in place of one that had grown too large
    memory_bytes   bigint not null,                      -- of the instance, at last
    slowest_s      float8,                               -- CPU time of the slowest event that was noticed
    slowest_stream int,
    slowest_offset bigint,
    primary key (task_id, span_s, at)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1);
create index task_figures_age on jeet_internal.task_figures (span_s, at);

-- Keys that bring more than a fair share of a task's events, by the latest look of the worker that runs it.
create table jeet_internal.hot_key (
    task_id       int not null,
    stream_id     int not null,
    key           text collate "C" not null,             -- whole: a key has 1,024 bytes at most
    share         real not null,                         -- of the task's events of this input
    share_error   real not null,
    sandbox_share real,                                  -- of the task's time in the sandbox; null: too little of it was seen
    sandbox_error real,
    keys          int,                                   -- how many keys the task has met lately; null: more than are counted
    since         timestamptz not null,
    at            timestamptz not null,
    primary key (task_id, stream_id, key)
) with (fillfactor = 50);
create index hot_key_age on jeet_internal.hot_key (at);

-- Where partitions stood: heads, or the next offsets of a reader. Written by the leading coordinator, kept the longer the
-- fewer there are: the first of each hour longest, then the first of each minute.
create table jeet_internal.position_sample (
    stream_id   int not null,
    function_id int not null,                            -- 0: the stream's own heads; else who reads
    stage       int not null,
    at          timestamptz not null,
    offsets     bigint[] not null,                       -- by partition
    lag         bigint,                                  -- of a reader, over all partitions
    keep_until  timestamptz not null,
    primary key (stream_id, function_id, stage, at)
);
create index position_sample_age on jeet_internal.position_sample (keep_until);
create index position_sample_reader on jeet_internal.position_sample (function_id, at);

-- Estimates of how much state there is, made now and then by a maintenance job.
create table jeet_internal.state_size (
    function_id   int not null,
    collection_id smallint not null,
    at            timestamptz not null,
    rows          bigint not null,
    bytes         bigint not null,
    error         real not null,                         -- relative standard error of both; 0: all of it was counted
    keep_until    timestamptz not null,
    primary key (function_id, collection_id, at)
);
create index state_size_age on jeet_internal.state_size (keep_until);

-- Who took a task from whom.
create table jeet_internal.lease_change (
    id          bigint generated always as identity primary key,
    task_id     int not null,
    from_worker int,                                     -- null: nobody had it before
    to_worker   int not null,
    reason      text not null check (reason in ('deployed', 'released', 'lost', 'restarted', 'changed')),
    elapsed_ms  float8,                                  -- for how long nobody ran it; null: its owner itself took it anew
    at          timestamptz not null
);
create index lease_change_task on jeet_internal.lease_change (task_id, id);
create index lease_change_age on jeet_internal.lease_change (at);

-- What a worker last said of itself.
create table jeet_internal.worker_figures (
    worker_id       int primary key references jeet_internal.worker on delete cascade,
    at              timestamptz not null,
    memory_bytes    bigint not null,                     -- resident memory of the process
    guest_bytes     bigint not null,                     -- memory of its guests' instances
    instances       int not null,
    lanes           int not null,
    busy            real not null,                       -- share of the lanes' time that they had something to do
    clock_offset_ms float8 not null,                     -- its clock less the database's
    clock_error_ms  float8 not null,                     -- at most so much is due to the way of the question
    python          text not null,
    wasmtime        text not null
) with (fillfactor = 50);
