select name from jeet_internal.function order by name
