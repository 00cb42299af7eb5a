"""A deploy does everything at once or nothing, and refuses what cannot be right, with the remedy."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.rows import dict_row

from control.conftest import SEED_JS, Deploy
from jeet.control import lifecycle, registry
from jeet.errors import DeployError, JeetError, NotFound, UsageError


def config(text: str, source: str = SEED_JS) -> str:
    return f"export const config = {text};\n{source}"


def streams(db: psycopg.Connection) -> dict[str, tuple[int, str | None]]:
    rows = db.execute("select name, partitions, key from jeet_internal.stream").fetchall()
    return {name: (partitions, key) for name, partitions, key in rows}


def tables(db: psycopg.Connection) -> list[tuple[object, ...]]:
    """Everything that a deploy could have left behind."""
    return [
        db.execute(f"select count(*) from jeet_internal.{table}").fetchone()  # type: ignore[misc]
        for table in ("stream", "head", "function", "function_version", "stage", "task", "checkpoint")
    ]


def advance(db: psycopg.Connection, stream: str, head: int) -> None:
    db.execute(
        "update jeet_internal.head h set head = %s from jeet_internal.stream s"
        " where s.id = h.stream_id and s.name = %s",
        (head, stream),
    )


def test_a_first_deploy_makes_streams_tasks_and_checkpoints(db: psycopg.Connection, deploy_source: Deploy) -> None:
    result = deploy_source(source="events", sink="totals", key="userId", partitions=4, name="t")
    assert (result.version, result.new_function, result.streams) == (1, True, ("events", "totals"))
    assert streams(db) == {"events": (4, "userId"), "totals": (4, None)}
    assert db.execute(
        "select t.partition, c.next_offset from jeet_internal.task t"
        " join jeet_internal.checkpoint c on c.task_id = t.id order by 1"
    ).fetchall() == [(0, 0), (1, 0), (2, 0), (3, 0)]
    with db.cursor(row_factory=dict_row) as cursor:
        spec = cursor.execute("select spec from jeet_internal.function_version").fetchone()
    assert spec is not None
    assert spec["spec"]["outputs"] == [{"stream": "totals", "key": None}]
    assert spec["spec"]["key"] == "userId"


def test_without_a_count_streams_get_eight_partitions(db: psycopg.Connection, deploy_source: Deploy) -> None:
    deploy_source(source="events", key="userId")
    assert streams(db) == {"events": (8, "userId")}
    assert db.execute("select outputs from jeet_internal.stage").fetchone() == ([None],)


def test_a_sink_takes_the_partition_count_of_the_source(db: psycopg.Connection, deploy_source: Deploy) -> None:
    db.execute("select jeet_internal.create_stream('events', 3, 'userId')")
    deploy_source(source="events", sink="totals")
    assert streams(db)["totals"] == (3, None)


def test_the_same_source_and_settings_make_no_new_version(db: psycopg.Connection, deploy_source: Deploy) -> None:
    first = deploy_source(source="events", sink="totals", key="userId", start="earliest")
    epochs = db.execute("select epoch from jeet_internal.task order by id").fetchall()
    again = deploy_source(source="events", sink="totals", key="userId", start="earliest")
    assert (first.version, again.version, again.new_version) == (1, 1, False)
    assert db.execute("select epoch from jeet_internal.task order by id").fetchall() == epochs
    # Written in another place, the settings are still the same.
    assert not deploy_source(source="events", sink="totals").new_version
    other = deploy_source(SEED_JS + "// changed\n", source="events", sink="totals")
    assert (other.version, other.new_version) == (2, True)
    assert deploy_source(SEED_JS + "// changed\n", source="events", sink="totals", on_error="halt").version == 3


def test_a_new_version_keeps_checkpoints_and_state_and_fences_off_the_old_one(
    db: psycopg.Connection, deploy_source: Deploy
) -> None:
    deploy_source(source="events", sink="totals", key="userId", partitions=2)
    db.execute("update jeet_internal.checkpoint set next_offset = 7")
    db.execute("insert into jeet_internal.collection values (1, 0, 'totals')")
    db.execute(
        "insert into jeet_internal.state (task_id, collection_id, key, value)"
        " select id, 0, 'k', '1' from jeet_internal.task"
    )
    before = dict(db.execute("select id, epoch from jeet_internal.task").fetchall())
    deploy_source(SEED_JS + "//2\n", source="events", sink="totals")
    after = dict(db.execute("select id, epoch from jeet_internal.task").fetchall())
    assert all(after[task] == before[task] + 1 for task in before)
    assert db.execute("select distinct next_offset from jeet_internal.checkpoint").fetchall() == [(7,)]
    assert db.execute("select count(*) from jeet_internal.state").fetchone() == (2,)
    assert db.execute("select version from jeet_internal.function").fetchone() == (2,)


STARTS: list[tuple[dict[str, str], list[int]]] = [
    ({}, [0, 5]),
    ({"start": "earliest"}, [0, 5]),
    ({"start": "latest"}, [10, 20]),
    ({"start": "3"}, [3, 5]),
    ({"start": "15"}, [10, 15]),
    ({"start": "999"}, [10, 20]),
]


def test_a_new_function_starts_where_it_is_told_to(db: psycopg.Connection, deploy_source: Deploy) -> None:
    db.execute("select jeet_internal.create_stream('events', 2)")
    db.execute("update jeet_internal.head set head = 10 + 10 * partition, first_offset = 5 * partition")
    for number, (flags, expected) in enumerate(STARTS):
        deploy_source(source="events", name=f"f{number}", **flags)
        offsets = db.execute(
            "select c.next_offset from jeet_internal.checkpoint c join jeet_internal.task t on t.id = c.task_id"
            " join jeet_internal.function f on f.id = t.function_id where f.name = %s order by t.partition",
            (f"f{number}",),
        ).fetchall()
        assert [row[0] for row in offsets] == expected, flags


def test_a_start_time_is_found_in_each_partition(db: psycopg.Connection, deploy_source: Deploy) -> None:
    stream = db.execute("select jeet_internal.create_stream('events', 2)").fetchone()[0]  # type: ignore[index]
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for partition, step in ((0, 1), (1, 10)):
        for offset in range(100):
            db.execute(
                'insert into jeet_internal.event (stream_id, partition, "offset", published_at, value)'
                " values (%s, %s, %s, %s, '1')",
                (stream, partition, offset, begin + timedelta(seconds=offset * step)),
            )
    advance(db, "events", 100)
    deploy_source(source="events", start=(begin + timedelta(seconds=45)).isoformat())
    assert db.execute("select next_offset from jeet_internal.checkpoint order by task_id").fetchall() == [(45,), (5,)]
    deploy_source(source="events", start="2030-01-01", name="late")
    assert db.execute("select next_offset from jeet_internal.checkpoint order by task_id offset 2").fetchall() == [
        (100,),
        (100,),
    ]


def test_a_start_that_differs_is_refused_for_a_function_that_runs(deploy_source: Deploy) -> None:
    deploy_source(source="events", start="latest")
    assert not deploy_source(source="events", start="latest").new_version
    assert not deploy_source(source="events").new_version
    with pytest.raises(DeployError, match="start is for new functions"):
        deploy_source(source="events", start="earliest")


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"source": "keyed", "partitions": 4}, "has 2 partitions, not 4"),
    ({"source": "keyed", "sink": "wide", "partitions": 2}, "wide has 16 partitions, not 2"),
    ({"source": "keyed", "sink": "keyed"}, "--cycle"),
    ({"source": "keyed", "emits": "keyed"}, "--cycle"),
    ({"source": "between", "sink": "wide"}, "belongs to another function"),
    ({"source": "keyed", "sink": "between"}, "belongs to another function"),
    ({"source": "fresh", "key": "a..b"}, "is not a path"),
]


def test_what_cannot_be_right_is_refused_and_leaves_nothing_behind(
    db: psycopg.Connection, deploy_source: Deploy
) -> None:
    db.execute("select jeet_internal.create_stream('keyed', 2, 'userId')")
    db.execute("select jeet_internal.create_stream('wide', 16)")
    db.execute("select jeet_internal.create_stream('between', 2, null, null, null, true)")
    before = tables(db)
    for flags, what in REFUSED:
        with pytest.raises(DeployError) as caught:
            deploy_source(**flags)
        assert what in str(caught.value)
        assert "\n" not in str(caught.value)
        assert tables(db) == before, flags


def test_a_chain_of_functions_keeps_the_key_of_the_first_source(db: psycopg.Connection, deploy_source: Deploy) -> None:
    deploy_source(source="events", sink="totals", key="userId", name="first")
    deploy_source(source="totals", sink="more", key="userId", name="second")
    assert registry.show(db, "second").spec["key"] == "userId"
    assert len(registry.show(db, "second").tasks) == 8
    deploy_source(source="more", key="other", name="third")  # keyed anew, by a stage that comes first
    assert len(registry.show(db, "third").tasks) == 16


def test_a_loop_over_several_functions_needs_to_be_asked_for(db: psycopg.Connection, deploy_source: Deploy) -> None:
    deploy_source(source="a", sink="b", name="one")
    deploy_source(source="b", sink="c", name="two")
    with pytest.raises(DeployError, match="other functions lead"):
        deploy_source(source="c", sink="a", name="three")
    assert db.execute("select name from jeet_internal.stream where in_cycle").fetchall() == []
    deploy_source(source="c", sink="a", name="three", cycle=True)
    assert db.execute("select name from jeet_internal.stream where in_cycle order by 1").fetchall() == [
        ("a",),
        ("b",),
        ("c",),
    ]
    # A new version of a function in the loop does not have to say it again for the others' sake alone.
    lifecycle.delete(db, "two")
    assert db.execute("select name from jeet_internal.stream where in_cycle").fetchall() == []


EMITTING_JS = "stream.map((event, context) => { context.emit('alerts', event); });\n"


def test_streams_that_code_names_are_created_and_those_of_others_must_be_declared(
    db: psycopg.Connection, deploy_source: Deploy
) -> None:
    first = deploy_source(EMITTING_JS, source="events", name="mine", key="userId")
    assert "alerts" in first.streams
    (note,) = first.notes
    assert note.startswith('stream alerts is new, and only context.emit("alerts") names it')
    assert not deploy_source(EMITTING_JS, source="events", name="mine").new_version
    # What an earlier version of the same function wrote, a later one may write.
    assert deploy_source(EMITTING_JS + "//\n", source="events", name="mine").version == 2
    with pytest.raises(DeployError, match="--emits=alerts"):
        deploy_source(EMITTING_JS, source="events", name="stranger")
    assert deploy_source(EMITTING_JS, source="events", name="stranger", emits="alerts").new_function
    assert deploy_source(config("{source: 'events', emits: ['alerts']}", EMITTING_JS), name="third").new_function
    with db.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute("select spec from jeet_internal.function_version order by function_id limit 1").fetchone()
    assert row is not None
    assert row["spec"]["outputs"] == [{"stream": None, "key": None}, {"stream": "alerts", "key": None}]


def test_what_a_deploy_changes_of_the_settings_before_is_told_with_the_way_back(deploy_source: Deploy) -> None:
    given = config("{ state: { totals: { ttl: '7d', refresh: 'access' } }, input: { type: 'object' } }")
    kept = {"source": "events", "key": "userId"}
    flags = {"sink": "sums", "emits": "a,b", "on_error": "retry:2:5s", "hold_ttl": False, "cycle": True, **kept}
    assert deploy_source(given, **flags).notes == ()
    assert deploy_source(given + "// other code\n", **flags).notes == ()
    assert deploy_source(source="events").notes == (
        "sink was sums, is none now; give --sink=sums to keep it",
        "on_error was retry:2:5s, is dead-letter now; give --on_error=retry:2:5s to keep it",
        "cycle was true, is false now; give --cycle to keep it",
        "hold_ttl was false, is true now; give --no_hold_ttl to keep it",
        "it may write to a no more; give --emits=a to keep that",
        "it may write to b no more; give --emits=b to keep that",
        "state.totals.ttl was 7d, is none now; put it into config.state.totals to keep it",
        "state.totals.refresh was access, is write now; put it into config.state.totals to keep it",
        "input was a schema, is none now; put it into config.input to keep it",
    )
    # What somebody has just asked for needs no way back.
    assert deploy_source(source="events", sink="other", on_error="halt").notes == (
        "sink was none, is other now",
        "on_error was dead-letter, is halt now",
    )


def test_another_source_is_another_function(deploy_source: Deploy) -> None:
    deploy_source(source="events", name="f")
    with pytest.raises(DeployError, match="another --name"):
        deploy_source(source="others", name="f")


NO_FUNCTIONS: list[tuple[str | bytes, str]] = [
    ("stream.map(event => {\n  return (;\n});", "f.js:2"),
    ("stream.map(5);", "takes a function"),
    ("throw new Error('at the top');", "at the top"),
    ("stream.window({});", "f.js:1"),
    (b"\xff\xfe", "not UTF-8"),
    ("export const config = { source: 'x', input: { type: 'nonsense' } };\nstream.map(e => e);", "JSON Schema"),
]


def test_a_file_that_is_no_function_is_refused_in_one_line(db: psycopg.Connection, deploy_source: Deploy) -> None:
    for source, what in NO_FUNCTIONS:
        with pytest.raises(DeployError) as caught:
            deploy_source(source, source="events")
        assert what in str(caught.value)
        assert "\n" not in str(caught.value)
    assert tables(db)[0] == (0,)


def test_a_wasm_of_the_same_plugin_deploys(db: psycopg.Connection, deploy_source: Deploy, plugin) -> None:
    module = plugin.module_bytes(
        plugin.compile(config("{source: 'events', sink: 'totals', key: 'userId'}"), "totals.js")
    )
    result = deploy_source(module, filename="totals.wasm")
    assert (result.name, result.streams) == ("totals", ("events", "totals"))
    assert db.execute("select source from jeet_internal.function_version").fetchone() == (None,)
    assert not deploy_source(module, filename="totals.wasm").new_version


def test_two_deploys_at_once_make_one_function_each_version_once(
    database_url: str, db: psycopg.Connection, plugin, tmp_path
) -> None:
    from jeet.control.code import read_code
    from jeet.control.deploy import deploy
    from jeet.control.spec import Flags

    results: list[object] = []

    def run(number: int) -> None:
        path = tmp_path / f"{number}.js"
        path.write_text(SEED_JS + f"// {number % 2}\n")
        try:
            with psycopg.connect(database_url, autocommit=True) as own:
                code = read_code(path, plugin, Flags(name="f", source="events", sink="totals", key="userId"))
                results.append(deploy(own, code, wait_s=0).version)
        except (JeetError, psycopg.Error) as error:
            results.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(result, int) for result in results), results
    versions = [
        row[0] for row in db.execute("select version from jeet_internal.function_version order by 1").fetchall()
    ]
    assert versions == list(range(1, len(versions) + 1))
    assert db.execute("select count(*) from jeet_internal.function").fetchone() == (1,)


def test_rollback_goes_one_version_back_or_to_the_one_named_and_back_again(
    db: psycopg.Connection, deploy_source: Deploy
) -> None:
    for number, ttl in ((1, "1h"), (2, "2h"), (3, "3h")):
        text = f"{{source: 'events', key: 'userId', onError: {{retry: {number}}}, state: {{totals: {{ttl: '{ttl}'}}}}}}"
        deploy_source(config(text), name="f")
    db.execute("select jeet_internal.register_collection(1, 'totals', 10800000, 'write', 64)")
    assert lifecycle.rollback(db, "f", wait_s=0).version == 2
    assert lifecycle.rollback(db, "f", 1, wait_s=0).version == 1
    assert db.execute("select ttl from jeet_internal.collection").fetchone() == (timedelta(hours=1),)
    assert db.execute("select on_error -> 'retry' from jeet_internal.function").fetchone() == (1,)
    with pytest.raises(UsageError, match="none before it"):
        lifecycle.rollback(db, "f", wait_s=0)
    with pytest.raises(NotFound, match="no version 9"):
        lifecycle.rollback(db, "f", 9, wait_s=0)
    assert not lifecycle.rollback(db, "f", 1, wait_s=0).changed
    assert [(v.version, v.current) for v in registry.versions(db, "f")] == [(3, False), (2, False), (1, True)]
    # The next deploy is a version of its own, not one that was there.
    assert deploy_source(config("{source: 'events', key: 'userId'}"), name="f").version == 4


def test_delete_takes_everything_of_the_function_and_leaves_its_streams(
    db: psycopg.Connection, deploy_source: Deploy
) -> None:
    deploy_source(source="events", sink="totals", key="userId", name="f", partitions=2)
    deploy_source(source="events", sink="totals2", name="g")
    db.execute("insert into jeet_internal.collection values (1, 0, 'totals')")
    db.execute("insert into jeet_internal.state (task_id, collection_id, key, value) values (1, 0, 'k', '1')")
    db.execute(
        'insert into jeet_internal.dead_letter (task_id, stream_id, "offset", event, error, version)'
        " values (1, 1, 0, '{}', 'e', 1)"
    )
    gone = lifecycle.delete(db, "f")
    assert (gone.tasks, gone.state_entries, gone.open_dead_letters) == (2, 1, 1)
    assert [function.name for function in registry.functions(db)] == ["g"]
    assert set(streams(db)) == {"events", "totals", "totals2"}
    assert db.execute("select count(*) from jeet_internal.task").fetchone() == (2,)
    with pytest.raises(NotFound, match=r"did you mean|there are g"):
        lifecycle.delete(db, "f")
    # Its name is free again, and begins anew.
    assert deploy_source(source="events", sink="totals", name="f").version == 1


def test_a_deploy_without_workers_says_so_at_once(deploy_source: Deploy) -> None:
    progress = deploy_source(source="events", partitions=2, wait_s=60).progress
    assert (progress.workers, progress.missing, progress.complete) == (0, (0, 1), False)


PIPELINE_JS = """export const config = { source: 'clicks', sink: 'top', key: 'id', partitions: 2 };
stream.filter(e => e.n > 0)
  .keyBy(e => e.user, { name: 'by_user', partitions: 4 })
  .window({ tumbling: '1m', time: 'at', delay: '5s', grace: '10s', lateTo: 'late' }).count({ name: 'clicks' })
  .keyBy('end')
  .reduce((top, next) => next, { name: 'top', ttl: '1h' });
"""


def test_a_pipeline_is_planned_from_its_code(db: psycopg.Connection, deploy_source: Deploy) -> None:
    result = deploy_source(PIPELINE_JS)
    assert result.streams == ("clicks", "top", "late")
    plans = [row[0] for row in db.execute("select plan from jeet_internal.stage order by stage").fetchall()]
    assert [[each["stream"] for each in plan["inputs"]] for plan in plans] == [["clicks"], ["f/by_user"], ["f/rekey1"]]
    assert [[each["stream"] for each in plan["outputs"]] for plan in plans] == [
        [None, "f/by_user"],
        [None, "late", "f/rekey1"],
        ["top"],
    ]
    assert (plans[0]["delay_ms"], plans[1]["hold_ms"], plans[0]["cuts"][0]["time_of"]) == (5000, 10000, 3)
    assert db.execute(
        "select spec -> 'state' -> 'top' ->> 'ttl_ms' from jeet_internal.function_version"
    ).fetchone() == ("3600000",)
    config = "export const config = { state: { clicks: { ttl: '7d' } }, "
    with pytest.raises(DeployError, match=r"^f.js:4: config.state.clicks.ttl would take values out of a window"):
        deploy_source(PIPELINE_JS.replace("export const config = { ", config))
    with pytest.raises(DeployError, match="stage 1 keeps clicks otherwise"):
        deploy_source(PIPELINE_JS.replace("'1m'", "'5m'"))
    with pytest.raises(DeployError, match=r"^f.js:3: window on line 4 takes the time from what this map makes"):
        deploy_source(PIPELINE_JS.replace("partitions: 4 })", "partitions: 4 }).map(e => e)"))
