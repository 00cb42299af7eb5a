"""Errors that are nobody's fault, in one commit of five: all are retried, none makes a dead letter."""

from __future__ import annotations

import pytest

from .figures import Figures
from .storm import Storm, measure

pytestmark = pytest.mark.drill

CODES = ["40001", "40P01", "55P03", "57014", "53300", "53100", "53200", "57P01", "57P03", "25006", "08006"]
UNLUCKY = """
create sequence misfortunes;
create function unlucky() returns trigger language plpgsql as $$
declare
    v_codes text[] := array[{codes}];
    v_code  text;
begin
    if random() < 0.2 then
        -- A sequence remembers what is rolled back.
        v_code := v_codes[1 + nextval('misfortunes') % cardinality(v_codes)];
        raise exception 'misfortune %', v_code using errcode = v_code;
    end if;
    return new;
end $$;
create trigger unlucky before update on jeet_internal.checkpoint for each row execute function unlucky();
"""


def test_errors_that_are_nobodys_fault_are_retried_and_make_no_dead_letter(
    database_url: str, seed: int, rounds: int, figures: Figures
) -> None:
    with Storm(database_url, seed, rate=300, partitions=4) as storm:
        workers = [worker.pid for worker in storm.cluster.workers()]
        storm.cluster.db.execute(UNLUCKY.format(codes=", ".join(f"'{code}'" for code in CODES)))
        slowest, raised = 0.0, 0
        while raised < 2 * rounds * len(CODES):  # each code twice a round
            slowest = max(slowest, measure(storm.until_all_move))
            raised = storm.cluster.value("select last_value from misfortunes")
        storm.cluster.db.execute("drop function unlucky cascade")
        assert [worker.pid for worker in storm.cluster.workers()] == workers
    # check_exact has seen that the dead letters are those of failing events and no others.
    storm.tell(figures, f"errors of Postgres ({len(CODES)} codes)", raised, note=f"slowest round {slowest:.1f} s")
