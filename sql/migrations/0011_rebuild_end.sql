-- A rebuild that cannot be right any more ends before it has forgotten anything.

-- It may begin with the first events that there are, though retention has taken others.
alter table jeet_internal.rebuild add column partial boolean not null default false;
alter table jeet_internal.function add column rebuild_failed text;
