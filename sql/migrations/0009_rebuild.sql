-- State that is built again from the sources.

-- A function whose state is built again from its sources (jeet rebuild).
create table jeet_internal.rebuild (
    function_id int primary key references jeet_internal.function on delete cascade,
    phase       text not null default 'settle' check (phase in ('settle', 'replay', 'close')),  -- advance_rebuilds tells what they are
    stages      int[] not null,                          -- each after those that write what it reads
    closing     int not null default 0,                  -- how many of these have come to the event time that they had
    outputs     boolean not null,                        -- what is made of events that are processed again is sent again
    begun_at    timestamptz not null default clock_timestamp()
);

-- While that lasts: where a source is to be read no further, and how far a task's clock may come.
alter table jeet_internal.checkpoint add column stop_at bigint;
alter table jeet_internal.task add column clock_limit timestamptz;

-- Its result has more columns now.
drop function if exists jeet_internal.acquire_tasks(int, int, int[]);
