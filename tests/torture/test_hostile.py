"""Bad events and hostile code: one dead letter each, every other result exact, no process dies."""

from __future__ import annotations

import pytest
from tests.torture.cluster import Cluster, wait_for
from tests.torture.oracle import TOTALS_JS, Generator, check_exact, publish

pytestmark = pytest.mark.drill

BAD = {
    "throwing": "throw new Error('no thanks')",
    "endless": "for (;;) {}",
    "memory-eating": "const all = []; for (;;) all.push(new Array(1e5).fill('x'))",
    "recursing": "const f = () => f() + 1; f()",
    "promise-rejecting": "return Promise.reject(new Error('rejected'))",
    "throwing null": "throw null",
    "never settling": "return new Promise(() => {})",
    "huge output": "return 'x'.repeat(3 << 20)",
    "not a number": "return { total: NaN }",
}
BAD_JS = """export const config = { source: 'events', sink: 'totals', key: 'userId' };
stream.map(event => {
  state.totals[event.userId] = (state.totals[event.userId] || 0) + (event.amount || 0);
  BAD
  return { id: event.id, userId: event.userId, currentTotal: state.totals[event.userId] };
});
""".replace("BAD", "\n  ".join(f"if (event.bad === {name!r}) {{ {code} }}" for name, code in BAD.items()))


def test_each_bad_event_becomes_one_dead_letter_and_all_other_results_are_exact(database_url: str) -> None:
    generator = Generator(seed=5, keys=50)
    with Cluster(database_url, workers=2) as cluster:
        cluster.deploy(BAD_JS, "totals", "--partitions=4")
        before = [worker.pid for worker in cluster.workers()]
        for name in BAD:
            publish(cluster.db, "events", generator.events(200))
            publish(cluster.db, "events", [{"id": -1, "userId": "u1", "amount": 1, "bad": name}])
        publish(cluster.db, "events", generator.events(200))
        cluster.drain("totals")
        dead = cluster.sql("select (event::json)->>'bad', error, attempts from jeet.dead_letters where status = 'open'")
        assert sorted(row[0] for row in dead) == sorted(BAD), dead
        assert [worker.pid for worker in cluster.workers()] == before
        cluster.db.execute("delete from jeet_internal.dead_letter")
        check_exact(cluster.db, generator)


TAMPER = {
    "replaces JSON.stringify": "try { JSON.stringify = () => 'null\\nnull' } catch {}",
    "replaces prototypes": "try { Array.prototype.push = () => 0; Map.prototype.set = function () {} } catch {}",
    "writes through Javy.IO": (
        "try { for (let fd = 0; fd < 16; fd++) Javy.IO.writeSync(fd, new Uint8Array([123, 10, 0, 255])) } catch {}"
    ),
    "emits keys with newlines": "context.emit('spoils', { userId: 'x', note: 'a\\nb' }, { key: 'k\\nk' })",
    "names other streams": (
        "for (const name of ['events', 'bank', 'jeet_internal.event', '0', -1])"
        " try { context.emit(name, { stolen: 1 }) } catch {}"
    ),
    "names partitions": "try { context.partition = 3; context.offset = 0; context.key = 'other' } catch {}",
    "pollutes": "try { Object.prototype.isAdmin = true; globalThis.stream = null; globalThis.state = null } catch {}",
    "floods the log": "for (let i = 0; i < 20000; i++) console.log('x'.repeat(100) + i)",
}


def test_functions_that_tamper_harm_nobody_but_themselves(database_url: str) -> None:
    generator = Generator(seed=6, keys=20)
    with Cluster(database_url, workers=1) as cluster:
        cluster.jeet("create_stream", "bank", "--partitions=2")
        cluster.deploy(TOTALS_JS, "totals", "--partitions=2")
        for number, trick in enumerate(TAMPER.values()):
            hostile = f"stream.map((event, context) => {{ {trick}; return {{ userId: event.userId, mine: 1 }}; }});"
            cluster.deploy(hostile, f"hostile{number}", "--source=events", f"--sink=spoils{number}", "--key=userId")
        pid = cluster.workers()[0].pid
        for _ in range(4):
            publish(cluster.db, "events", generator.events(25))
        cluster.drain("totals")
        wait_for(lambda: cluster.value("select sum(lag) from jeet.lag") == 0, "all is processed", 120)
        check_exact(cluster.db, generator)
        assert cluster.value("select count(*) from jeet.stream_events where stream = 'bank'") == 0
        assert cluster.value("select count(*) from jeet.stream_events where stream = 'events'") == generator.made
        for number, name in enumerate(TAMPER):
            consumed = cluster.value(
                "select (select count(*) from jeet.dead_letters where function = %s)"
                " + (select count(*) from jeet.stream_events where stream = %s and value->>'mine' = '1')",
                f"hostile{number}",
                f"spoils{number}",
            )
            assert consumed == generator.made, name  # each event gave its output or one dead letter
        assert [worker.pid for worker in cluster.workers()] == [pid]
