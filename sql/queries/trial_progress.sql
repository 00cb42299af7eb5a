select coalesce(sum(next_offset), 0)::bigint, coalesce(sum(lag), 0)::bigint from jeet.lag where function = %(function)s;
