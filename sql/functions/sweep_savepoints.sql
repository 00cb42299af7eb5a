-- Removes at most p_limit rows of savepoints that nobody can see any more: dropped ones, those of functions that are gone, and
-- of the automatic ones of each function all but the newest p_keep. Returns how many; fewer than p_limit: that was all.
create or replace function jeet_internal.sweep_savepoints(p_keep int, p_limit int) returns int language plpgsql as $$
declare
    v_id    int;
    v_table text;
    v_rows  int;
    v_total int := 0;
begin
    update jeet_internal.savepoint p set dropped = true
      from (select s.id, row_number() over (partition by s.function_id order by s.id desc) as age
              from jeet_internal.savepoint s where s.automatic and not s.dropped) old
     where p.id = old.id and old.age > p_keep;
    -- Whoever restores one holds its row, and is let finish.
    for v_id in select p.id from jeet_internal.savepoint p where p.dropped or p.function_id is null order by p.id for update skip locked loop
        foreach v_table in array array['savepoint_state', 'savepoint_event', 'savepoint_timer', 'savepoint_letter'] loop
            execute format('delete from jeet_internal.%I where ctid = any (array(select ctid from jeet_internal.%1$I where savepoint_id = $1 limit $2))',
                           v_table) using v_id, p_limit - v_total;
            get diagnostics v_rows = row_count;
            v_total := v_total + v_rows;
            if v_total >= p_limit then
                return v_total;
            end if;
        end loop;
        delete from jeet_internal.savepoint where id = v_id;
    end loop;
    return v_total;
end $$;
