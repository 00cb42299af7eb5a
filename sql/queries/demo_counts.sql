select (select head from jeet.streams where name = 'flights'), (select head from jeet.streams where name = 'aircraft_totals'),
       (select count(*) from jeet.dead_letters where function = 'flights');
