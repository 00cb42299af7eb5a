-- A function's graph, cut into stages.

-- What a stage reads, runs and hands on (jeet/plan.py). Null: the whole graph is one stage.
alter table jeet_internal.stage add column plan jsonb;

-- The function's sources stand still and its event time is at its end, until what is under way between its stages is
-- used up: so a new version with other stages can take over.
alter table jeet_internal.function add column draining boolean not null default false;

-- The function that it belonged to has let go of it: maintenance removes it.
alter table jeet_internal.stream add column dropped boolean not null default false;
