select collection, count(*) as keys, count(*) filter (where expires_at is not null) as expiring, max(updated_at) as updated_at
  from jeet.state where function = %(function)s group by collection order by collection;
