-- Events, outputs, and the sum over all users from the log and from state: equal in pairs.
select (select head from jeet.streams where name = 'bench'), (select head from jeet.streams where name = 'bench_totals'),
       (select sum((value ->> 'amount')::bigint) from jeet.stream_events where stream = 'bench'),
       (select sum(value::bigint) from jeet.state where function = 'bench' and collection = 'totals');
