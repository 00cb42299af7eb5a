-- What a migration needs before the first one: the two schemas and the list of what was applied.
create schema if not exists jeet;
create schema if not exists jeet_internal;
create table if not exists jeet_internal.migration (
    name       text collate "C" primary key,  -- a migration, 'functions' for all functions and views together, or 'contract'
    digest     text not null,                 -- SHA-256 of the text applied; of 'contract' its number (jeet/db/migrate.py)
    applied_at timestamptz not null default now()
);
