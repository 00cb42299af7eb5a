select * from jeet.savepoints where function = %(name)s order by id desc
