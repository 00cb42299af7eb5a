-- One partition carries most of the load. Told only of streams where enough happens, and of a share that is far from a fair one.
create or replace view jeet_internal.rule_data_skew as
with arrival as (  -- a stream that several functions read is one
    select distinct on (r.stream, r.partition) r.stream, r.partition, r.arrival_per_s
      from jeet.rates r
     order by r.stream, r.partition
), load as (
    select a.stream, a.partition, a.arrival_per_s, sum(a.arrival_per_s) over w as all_per_s, count(*) over w as partitions
      from arrival a
    window w as (partition by a.stream)
), heavy as (
    select l.*, l.arrival_per_s / l.all_per_s as share
      from load l
     where l.all_per_s >= jeet_internal.threshold('skew_per_s')
       and l.arrival_per_s / l.all_per_s >= greatest(jeet_internal.threshold('skew_share'), 1.5 / l.partitions)
)
select format('one partition carries most of the load: partition %s of %s', h.partition, h.stream) as observation,
       case when k.key is null then 'few keys, or keys that happen to share a partition' else 'a hot key' end as likely_cause,
       format('%s %% of %s events a second, in one of %s partitions', round(h.share * 100), round(h.all_per_s), h.partitions)
       || coalesce(format('; key %s brings %s %% of that partition (± %s %%)', to_json(k.key), round((k.share * 100)::numeric, 1), round((k.error * 100)::numeric, 1)), '') as evidence,
       're-key or split: choose a key with more values, or add a part to the hot one (its key and a number) and sum up in a second stage; '
       'another key, with state begun anew: jeet deploy FILE --key=… --drain (--reset also discards what is under way), or beside this one with --name=… --sink=…' as action,
       k.since,
       jsonb_build_object('stream', h.stream, 'partition', h.partition, 'share', round(h.share::numeric, 3), 'events_per_s', round(h.all_per_s),
                          'key', k.key, 'key_share', k.share, 'key_error', k.error) as figures
  from heavy h
  left join lateral (select hk.key, hk.share, hk.error, hk.since from jeet.hot_keys hk
                      where hk.stream = h.stream and hk.partition = h.partition and hk.share - hk.error >= jeet_internal.threshold('hot_share')
                      order by hk.share desc limit 1) k on true;
