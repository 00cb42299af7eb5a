-- A task of a stage for each partition that has none yet.
insert into jeet_internal.task (function_id, stage, partition, version)
select %(function)s, %(stage)s, p, %(version)s from generate_series(0, %(partitions)s - 1) p
 order by p
    on conflict do nothing
