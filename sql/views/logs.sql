create or replace view jeet.logs as
select l.id, f.name as function, l.version, l.partition, l."offset", l.level, l.message, l.logged_at
  from jeet_internal.log l
  join jeet_internal.function f on f.id = l.function_id;

comment on view jeet.logs is 'What functions wrote with console.*';
comment on column jeet.logs.id is 'rises in the order of commits of one task';
comment on column jeet.logs.function is 'the function';
comment on column jeet.logs.version is 'its version';
comment on column jeet.logs.partition is 'the partition of the event that was being processed';
comment on column jeet.logs."offset" is 'the offset of that event; null: outside any event';
comment on column jeet.logs.level is 'debug, info, warning or error';
comment on column jeet.logs.message is 'the text, cut with a mark if it is long';
comment on column jeet.logs.logged_at is 'when the batch was committed';
