select name from jeet.functions order by name;
