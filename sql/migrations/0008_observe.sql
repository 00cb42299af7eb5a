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
