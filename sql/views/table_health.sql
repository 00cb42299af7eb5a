create or replace view jeet.table_health as
select h.name, h.live_rows, h.dead_rows, h.last_vacuum, h.bytes
  from jeet_internal.table_health() h;

comment on view jeet.table_health is 'Size and upkeep of Jeet''s tables, as the server''s statistics tell it';
comment on column jeet.table_health.name is 'the table; event is the log, all streams together';
comment on column jeet.table_health.live_rows is 'rows';
comment on column jeet.table_health.dead_rows is 'old versions of rows that vacuum has not removed yet';
comment on column jeet.table_health.last_vacuum is 'when it was last vacuumed; of the log its latest segment; null: never';
comment on column jeet.table_health.bytes is 'size on disk, indexes included';
