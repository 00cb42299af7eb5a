select id, version, status from jeet_internal.function where name = %(name)s
