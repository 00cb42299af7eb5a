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
    stream_id  int not null,
    "offset"   bigint not null,
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
