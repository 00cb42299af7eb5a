-- Collections that a function declares or has ever written.
select c.name from jeet_internal.collection c join jeet_internal.function f on f.id = c.function_id where f.name = %(function)s;
