-- Keyed state: JSON values by collection and key, owned by one task.

create table jeet_internal.state (
    task_id       int not null references jeet_internal.task on delete cascade,
    collection_id smallint not null,
    key           text collate "C" not null,
    value         json not null,
    expires_at    timestamptz,                           -- expired means expires_at + task.ttl_hold <= database clock
    updated_at    timestamptz not null default now(),
    primary key (task_id, collection_id, key)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
-- By task, as each task's clock has its own hold: the sweep reads exactly what has expired.
create index state_expiry on jeet_internal.state (task_id, expires_at) where expires_at is not null;
