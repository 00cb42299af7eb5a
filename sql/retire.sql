-- After all functions were applied anew, in the same transaction: drop those of earlier versions, so that no old signature
-- stays callable with the rights it had. What was applied just now is told by its xmin. In schema jeet, which people may put
-- functions of their own into, only namesakes go.
do $$
declare
    v_old regprocedure;
begin
    for v_old in
        select p.oid::regprocedure from pg_proc p
         where p.pronamespace in ('jeet'::regnamespace, 'jeet_internal'::regnamespace) and p.xmin <> pg_current_xact_id()::xid
           and (p.pronamespace = 'jeet_internal'::regnamespace
                or exists (select from pg_proc n where n.pronamespace = p.pronamespace and n.proname = p.proname
                                                   and n.xmin = pg_current_xact_id()::xid))
    loop
        execute format('drop routine %s', v_old);
    end loop;
end $$;
