insert into jeet_internal.function (name, version, on_error, hold_ttl)
values (%(name)s, 1, %(on_error)s, %(hold_ttl)s)
returning id
