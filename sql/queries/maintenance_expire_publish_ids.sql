-- Forget at most $1 ids whose window is over. Checked again in the DELETE: a repeat may have renewed one.
with doomed as materialized (
    select p.stream_id, p.id
      from jeet_internal.publish_id p
     where p.expires_at <= clock_timestamp()
     order by p.expires_at
     limit $1::int
       for update skip locked
), deleted as (
    delete from jeet_internal.publish_id p
     using doomed d
     where p.stream_id = d.stream_id and p.id = d.id and p.expires_at <= clock_timestamp()
    returning 1
)
select count(*) from deleted
