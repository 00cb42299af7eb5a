create or replace view jeet.functions as
select f.name, f.version, f.status, v.spec ->> 'source' as source, v.spec ->> 'sink' as sink, f.deployed_at,
       case when r.phase is not null then 'rebuilding' when f.draining then 'draining' end as under_way
  from jeet_internal.function f
  left join jeet_internal.function_version v on v.function_id = f.id and v.version = f.version
  left join jeet_internal.rebuild r on r.function_id = f.id;

comment on view jeet.functions is 'Deployed functions';
comment on column jeet.functions.name is 'the function';
comment on column jeet.functions.version is 'the version that its tasks run';
comment on column jeet.functions.status is 'running, paused, or failed (it stopped on an error, see jeet.diagnosis)';
comment on column jeet.functions.source is 'the stream it reads';
comment on column jeet.functions.sink is 'the stream it writes; null: none';
comment on column jeet.functions.deployed_at is 'when this version became the one to run';
comment on column jeet.functions.under_way is 'rebuilding (its state is built again) or draining (for another version), in which its sources stand still; null: neither';
