-- A function's graph, cut into stages.

-- What a stage reads, runs and hands on (jeet/plan.py). Null: the whole graph is one stage.
alter table jeet_internal.stage add column plan jsonb;

-- The function's sources stand still and its event time is at its end, until what is under way between its stages is
-- used up: so a new version with other stages can take over.
alter table jeet_internal.function add column draining boolean not null default false;

-- The function that it belonged to has let go of it: maintenance removes it.
alter table jeet_internal.stream add column dropped boolean not null default false;

-- How far a task has come in event time, and what it is to do at some time.
alter table jeet_internal.task
    add column clock timestamptz,
    add column watermark timestamptz,
    add column watermark_at timestamptz,
    add column late bigint not null default 0;

create table jeet_internal.timer (
    task_id  int not null references jeet_internal.task on delete cascade,
    operator text collate "C" not null,
    key      text collate "C" not null,
    name     text collate "C" not null,
    at       timestamptz not null,
    wall     boolean not null,
    begun    boolean not null default false,
    attempts int not null default 0,
    primary key (task_id, operator, key, name)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
-- In two, so that a timer is never looked up by its task in them: which one to use is not left to what the planner believes.
create index timer_event on jeet_internal.timer (task_id, at) where not wall;
create index timer_wall on jeet_internal.timer (task_id, at) where wall;
create index timer_begun on jeet_internal.timer (task_id) where begun;

-- A timer that failed comes from no stream.
alter table jeet_internal.dead_letter alter column stream_id drop not null;

-- Its result has more columns now.
drop function if exists jeet_internal.acquire_tasks(int, int, int[]);
