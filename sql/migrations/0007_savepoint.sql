-- Savepoints; and which version of its function wrote an entry of state.

alter table jeet_internal.state add column version int;

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
