-- Streams that their function has let go of. A log that we own is detached without making anybody wait, so far as that is
-- still to be done.
select s.id,
       case when i.inhrelid is not null and pg_has_role((select relowner from pg_class where oid = 'jeet_internal.event'::regclass), 'usage')
            then format('alter table jeet_internal.event detach partition jeet_internal.event_%s %s', s.id,
                        case when i.inhdetachpending then 'finalize' else 'concurrently' end) end as detach
  from jeet_internal.stream s
  left join pg_inherits i on i.inhparent = 'jeet_internal.event'::regclass
                         and i.inhrelid = to_regclass(format('jeet_internal.event_%s', s.id))
 where s.dropped
 order by s.id
