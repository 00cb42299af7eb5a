"""jeet.testing: functions run on events without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from jeet.errors import DeployError
from jeet.sandbox.durations import duration_ms
from jeet.sandbox.plugin import Plugin
from jeet.testing import LocalFunction, state_configs

from .conftest import TOTALS, Local

FUNCTIONS = Path(__file__).parents[2] / "functions"


def test_compiled_code_is_kept_under_the_home_of_jeet_and_needs_no_home_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("JEET_HOME", str(tmp_path / "jeet"))
    with LocalFunction("stream.map(e => e + 1)") as function:
        assert function.feed([1]).values() == [2]
    assert list((tmp_path / "jeet" / "sandbox").iterdir())
    assert not (tmp_path / "user").exists()


def test_a_function_in_a_file_runs_with_its_own_config(local: Local, tmp_path: Path) -> None:
    config = (
        "export const config = { key: 'userId', state: { totals: { ttl: '7d' } }, input: { required: ['amount'] } };\n"
    )
    path = tmp_path / "totals.js"
    path.write_text(config + TOTALS, encoding="utf-8")
    function = local(path.read_text(encoding="utf-8"), filename=path.name)
    run = function.feed([{"userId": "u1", "amount": 5}, {"userId": "u1"}, {"userId": "u1", "amount": 7}])
    assert [output["currentTotal"] for output in run.values()] == [5, 12]
    assert [output.key for output in run.outputs] == ["u1", "u1"]
    assert "amount" in run.failures[0].error
    assert function.state("totals") == {"u1": 12}


@pytest.mark.parametrize("path", sorted(FUNCTIONS.glob("*.js")), ids=lambda path: path.name)
def test_every_example_deploys(plugin: Plugin, path: Path) -> None:
    described = plugin.describe(plugin.compile(path.read_text(encoding="utf-8"), path.name))
    assert described.lints == ()


def test_batches_do_not_show(local: Local) -> None:
    events = [{"userId": f"u{n % 7}", "amount": n} for n in range(100)]
    whole = local(TOTALS).feed(events)
    parts = local(TOTALS, batch_events=3)
    outputs = [output for event in events for output in parts.feed([event]).values()]
    assert outputs == whole.values()


def test_an_event_that_no_stream_accepts_is_refused(local: Local) -> None:
    function = local(TOTALS, key="userId")
    with pytest.raises(ValueError, match="key"):
        function.feed([{"amount": 1}])
    with pytest.raises(ValueError, match="2\\^53"):
        function.feed([{"userId": "a", "amount": 2**60}])


def test_bad_text_among_good_events_is_one_failure_each_time(local: Local) -> None:
    source = "stream.map(e => { state.s[e.id] = 'ok'; if (e.bad) state.s.bad = e.text.slice(1); return e.bad === 2 ? e.text.slice(1) : e.n; })"  # noqa: E501
    function = local(source)
    events = [{"id": f"k{n}", "n": n, "text": "🌍", "bad": {3: 1, 5: 2, 9: 1}.get(n, 0)} for n in range(12)]
    for _ in range(2):
        run = function.feed(events)
        assert [failure.event % 12 for failure in run.failures] == [3, 5, 9]
        assert all("lone surrogate" in failure.error for failure in run.failures)
        assert run.values() == [n for n in range(12) if n not in (3, 5, 9)]
        assert set(function.state("s")) == {f"k{n}" for n in range(12) if n not in (3, 5, 9)}


def test_collections_are_configured_as_written() -> None:
    configs = state_configs({"state": {"a": {"ttl": "250ms"}, "b": {"ttl": "7d", "refresh": "access"}, "c": {}}})
    assert [(name, config.ttl_ms, config.refresh) for name, config in configs.items()] == [
        ("a", 250, "write"),
        ("b", 7 * 86_400_000, "access"),
        ("c", None, "write"),
    ]
    for wrong in ({"a": 5}, {"a": {"ttl": "soon"}}, {"a": {"ttl": 5}}, {"a": {"refresh": "always"}}, [1]):
        with pytest.raises(DeployError, match=r"config\.state"):
            state_configs({"state": wrong})


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000), ("7d", 604_800_000), ("1.5s", 1500)],
)
def test_durations_are_read_as_written(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "7", "d", "-1s", "1w", "1 s s", 5, None, "0s", "1e3s", "999999999d", "∞"])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration_ms(text)


def test_a_module_that_cannot_be_deployed_leaves_nothing_open() -> None:
    with pytest.raises(DeployError):
        LocalFunction("const x = ;")
