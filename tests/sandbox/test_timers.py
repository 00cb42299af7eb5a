"""Timers of user code: rows of the batch, undone with their event, run as events of their own when due."""

from __future__ import annotations

import pytest

from jeet.sandbox.call import BatchInput, TimerSet

from .conftest import Open as OpenInstance
from .conftest import batch_of, values
from .stages import Open, plan_of

SOURCE = """
stream.map((e, context) => {
  if (e.cancel) context.cancelTimer(e.name);
  else context.timer(e.name, e.options);
  if (e.bad) throw new Error('bad');
  return null;
});
stream.onTimer((name, context) => {
  state.fired[context.key] = (state.fired[context.key] || 0) + 1;
  if (name === 'throws') throw new Error('no');
  if (name === 'again' && state.fired[context.key] < 3) context.timer(name, { after: '1s', clock: 'event' });
  return { name, key: context.key, at: context.timestamp };
});
"""
EVENT = {"clock": "event"}


def test_a_timer_by_event_time_fires_when_the_watermark_reaches_it(stages: Open) -> None:
    stage = stages(SOURCE)
    stage.feed(
        [
            ("k", {"name": "b", "options": {"at": 1000, **EVENT}}, 0),
            ("j", {"name": "a", "options": {"after": "900ms", **EVENT}}, 100),
            ("k", {"name": "c", "options": {"at": "1970-01-01T00:00:02Z", **EVENT}}, 999),
        ]
    )
    assert stage.seen.values() == []
    stage.feed([("k", {"name": "d", "options": {"at": 5000, **EVENT}}, 1000)])
    assert stage.seen.values() == [{"name": "a", "key": "j", "at": 1000}, {"name": "b", "key": "k", "at": 1000}]
    assert [timer[2:] for timer in stage.timers()] == [("c", 2000, False), ("d", 5000, False)]


def test_the_last_word_on_a_timer_of_a_key_counts(stages: Open) -> None:
    stage = stages(SOURCE)
    stage.feed(
        [
            ("k", {"name": "a", "options": {"at": 1000, **EVENT}}, 0),
            ("k", {"name": "a", "options": {"at": 3000, **EVENT}}, 0),
            ("k", {"name": "b", "options": {"at": 1000, **EVENT}}, 0),
            ("k", {"name": "b", "cancel": True}, 0),
            ("k", {"name": "c", "options": {"at": 1000, **EVENT}}, 0),
            ("k", {"name": "c", "options": None}, 0),
            ("other", {"name": "a", "options": {"at": 2000, **EVENT}}, 0),
        ],
        cut=2,
    )
    assert stage.timers() == [("onTimer", "other", "a", 2000, False), ("onTimer", "k", "a", 3000, False)]


def test_timers_of_an_event_that_fails_are_not_set(stages: Open) -> None:
    stage = stages(SOURCE)
    good = ("k", {"name": "a", "options": {"at": 1000, **EVENT}}, 0)
    moved = ("k", {"name": "a", "options": {"at": 9000, **EVENT}, "bad": True}, 0)
    gone = ("k", {"name": "a", "cancel": True, "bad": True}, 5000)
    stage.feed([good, moved, gone])
    assert len(stage.seen.faults) == 2
    assert stage.timers() == [("onTimer", "k", "a", 1000, False)]  # nor does its time count


def test_a_timer_may_set_itself_again_and_one_that_fails_leaves_no_trace(stages: Open) -> None:
    stage = stages(SOURCE)
    stage.feed([("k", {"name": "again", "options": {"at": 1000, **EVENT}}, 0)])
    stage.feed([("j", {"name": "throws", "options": {"at": 1000, **EVENT}}, 0)])
    stage.feed([("x", {"name": "y", "options": {"at": 99_000, **EVENT}}, 10_000)])
    assert [one["at"] for one in stage.seen.values()] == [1000, 2000, 3000]
    assert stage.state("fired") == {"k": 3}
    assert [error for _, error in stage.seen.faults] == ["Error: no"]


def test_a_wall_timer_is_set_from_the_event_s_own_now(instances: OpenInstance) -> None:
    source = """
    stream.onTimer(name => name);
    stream.map((e, c) => { c.timer('t', { after: '5m' }); c.timer('u', { at: new Date(7) }); return Date.now(); });
    """
    result = instances(source, plan=plan_of()).run(batch_of([1], keys=["k"]))
    (now,) = values(result.outputs[0].values)
    assert result.timers == [
        TimerSet("onTimer", "k", "t", now + 300_000, wall=True),
        TimerSet("onTimer", "k", "u", 7, wall=True),
    ]


def test_a_timer_of_wall_time_runs_as_an_event_of_its_own(instances: OpenInstance) -> None:
    source = """
    stream.map(e => e);
    stream.onTimer(async (name, c) => { await 1; return [name, c.key, c.timestamp, c.offset]; });
    """
    batch = BatchInput(
        first_offset=-7,
        count=2,
        values=b'{"operator":"onTimer","name":"t","wall":true}\n{"operator":"onTimer","name":"u","wall":true}',
        keys=b'"a"\n"b"',
        timestamps=b"5\n6",
        timers=True,
        watermark_ms=1.0,
    )
    result = instances(source, plan=plan_of()).run(batch)
    assert values(result.outputs[0].values) == [["t", "a", 5, -7], ["u", "b", 6, -6]]
    assert result.outputs[0].keys == '"a"\n"b"'


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("context.timer('', { at: 1 })", "takes a name first"),
        ("context.timer('t')", "{ at: time } or { after: '5m' }"),
        ("context.timer('t', {})", "{ at: time } or { after: '5m' }"),
        ("context.timer('t', { at: 1, after: '1s' })", "{ at: time } or { after: '5m' }"),
        ("context.timer('t', { after: 5 })", "context.timer: after is 5, which is no duration"),
        ("context.timer('t', { at: NaN })", "context.timer: at gave NaN, which is no time"),
        ("context.timer('t', { at: 1, clock: 'sun' })", "there are 'wall' and 'event'"),
        ("context.timer('t', { att: 1 })", 'context.timer has no option "att"'),
        ("context.timer('\\0', { at: 1 })", "NUL"),
        ("context.timer('x'.repeat(2000), { at: 1 })", "key_bytes"),
        ("for (let i = 0; i < 2000; i++) context.timer(`t${i}`, { at: 1 })", "at most 1000 timers"),
    ],
)
def test_a_timer_that_cannot_be_set_is_the_fault_of_its_event(instances: OpenInstance, call: str, error: str) -> None:
    source = f"stream.onTimer(n => n); stream.map((e, context) => {{ {call}; return 1; }});"
    result = instances(source, plan=plan_of()).run(batch_of([1], keys=["k"]))
    assert error in result.faults[0].error
    assert result.timers == []


def test_a_timer_needs_a_key_and_somebody_who_waits_for_it(instances: OpenInstance) -> None:
    call = "stream.map((e, context) => { context.timer('t', { at: 1 }); return 1; });"
    result = instances("stream.onTimer(n => n);" + call, plan=plan_of()).run(batch_of([1], keys=[None]))
    assert "add keyBy" in result.faults[0].error
    result = instances(call).run(batch_of([1], keys=["k"]))
    assert "add stream.onTimer" in result.faults[0].error
    kept = "let kept; stream.map((e, c) => { if (kept) kept.timer('t', { at: 1 }); kept = c; return 1; });"
    result = instances(kept).run(batch_of([1, 2], keys=["k", "k"]))
    assert "after its event had ended" in result.faults[0].error
