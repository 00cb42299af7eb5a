select c.name, c.ttl, c.refresh from jeet_internal.collection c where c.function_id = %(function)s order by c.id
