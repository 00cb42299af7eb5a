-- Timers by the clock on the wall outlast a rebuild.

-- Those that were pending when a rebuild began its replay: they fire once it is over, in place of what the replay set.
create table jeet_internal.kept_timer (
    task_id  int not null references jeet_internal.task on delete cascade,
    operator text collate "C" not null,
    key      text collate "C" not null,
    name     text collate "C" not null,
    at       timestamptz not null,
    begun    boolean not null,
    attempts int not null,
    primary key (task_id, operator, key, name)
);
