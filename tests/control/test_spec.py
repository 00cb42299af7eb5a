"""How config, code and flags become one set of settings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from jeet.control.spec import Collection, Flags, FunctionSpec, duration_ms, merge, parse_start
from jeet.errors import DeployError


def spec(
    config: dict[str, Any] | None = None, code: list[tuple[str, bool]] | None = None, /, **flags: Any
) -> FunctionSpec:
    return merge({"source": "events"} if config is None else config, code or [], Flags(**flags), "totals.js")


def test_the_name_comes_from_the_flag_then_the_config_then_the_file() -> None:
    assert spec().name == "totals"
    assert spec({"source": "events", "name": "mine"}).name == "mine"
    assert spec({"source": "events", "name": "mine"}, name="other").name == "other"


@pytest.mark.parametrize("name", ["1e5", "None", "3.10", "true", "0x10", "_", "a" * 128, "a.b-c_d"])
def test_names_stay_the_text_that_was_written(name: str) -> None:
    found = spec({}, name=name, source=name, sink=f"{name[:100]}2")
    assert (found.name, found.source) == (name, name)


@pytest.mark.parametrize("name", ["", "-x", ".x", "a b", "a/b", "é", "a" * 129, "a\n", "a,b", "jeet:x"])
def test_names_that_are_not_safe_everywhere_are_refused(name: str) -> None:
    for flags in ({"name": name}, {"source": name}, {"sink": name}):
        with pytest.raises(DeployError, match="cannot be the name"):
            spec({"source": "events"}, **flags)


def test_a_file_whose_name_is_no_name_says_to_give_one() -> None:
    with pytest.raises(DeployError, match="--name"):
        merge({"source": "events"}, [], Flags(), "my function.js")


def test_flags_win_over_config() -> None:
    found = spec(
        {"source": "a", "sink": "b", "partitions": 4, "onError": "halt"},
        source="c",
        sink="d",
        partitions=2,
        on_error="dead-letter",
    )
    assert (found.source, found.sink, found.partitions, found.on_error) == ("c", "d", 2, "dead-letter")


def test_keys_that_contradict_each_other_are_an_error_and_equal_ones_are_not() -> None:
    assert spec({"source": "events", "key": "userId"}, key="userId").key == "userId"
    with pytest.raises(DeployError, match=r"config\.key.*--key"):
        spec({"source": "events", "key": "userId"}, key="accountId")


def test_a_source_is_required() -> None:
    with pytest.raises(DeployError, match=r"no source.*--source"):
        spec({})


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"sinc": "x"}, "did you mean sink"),
        ({"on_error": "halt"}, "did you mean onError"),
        ({"key": 5}, "config.key"),
        ({"key": ""}, "key is empty"),
        ({"source": ["a"]}, "cannot be the name"),
        ({"partitions": 0}, "1 to 4096"),
        ({"partitions": "8"}, "1 to 4096"),
        ({"partitions": True}, "1 to 4096"),
        ({"state": []}, "config.state must be an object"),
        ({"state": {"a b": {}}}, "cannot be the name of a state collection"),
        ({"state": {"1a": {}}}, "cannot be the name of a state collection"),
        ({"state": {"a-b": {}}}, "cannot be the name of a state collection"),
        ({"state": {"a": 7}}, "config.state.a must be an object"),
        ({"state": {"a": {"ttl": 7}}}, "config.state.a.ttl"),
        ({"state": {"a": {"ttl": "7"}}}, "config.state.a.ttl"),
        ({"state": {"a": {"ttl": "0s"}}}, "config.state.a.ttl"),
        ({"state": {"a": {"ttl": "-1s"}}}, "config.state.a.ttl"),
        ({"state": {"a": {"tll": "1s"}}}, "has tll"),
        ({"state": {"a": {"ttl": "1s", "refresh": "read"}}}, "'write' or 'access'"),
        ({"state": {"a": {"refresh": "access"}}}, "no ttl to refresh"),
        ({"state": {f"c{i}": {} for i in range(65)}}, "at most 64"),
        ({"emits": 5}, "list of stream names"),
        ({"emits": [5]}, "list of stream names"),
        ({"onError": "retry"}, "onError is"),
        ({"onError": {"retry": 0}}, "onError is"),
        ({"onError": {"retry": 1001}}, "onError is"),
        ({"onError": {"retry": "3"}}, "onError is"),
        ({"onError": {"retry": 3, "backof": "1s"}}, "onError is"),
        ({"onError": {"retry": 3, "backoff": "soon"}}, "onError.backoff"),
        ({"start": "tomorrow"}, "start is"),
        ({"start": -1}, "start is"),
        ({"cycle": "yes"}, "true or false"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(config: dict[str, Any], what: str) -> None:
    with pytest.raises(DeployError) as caught:
        spec({"source": "events", **config})
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_collections_have_their_times_to_live_in_milliseconds() -> None:
    found = spec(
        {
            "source": "events",
            "state": {"a": {"ttl": "7d"}, "b": {"ttl": "250ms", "refresh": "access"}, "c": None, "$_9": {}},
        }
    )
    assert found.state == {
        "a": Collection(604_800_000),
        "b": Collection(250, "access"),
        "c": Collection(),
        "$_9": Collection(),
    }


@pytest.mark.parametrize(
    ("text", "length"), [("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000), ("7d", 604_800_000)]
)
def test_durations_are_read(text: str, length: int) -> None:
    assert duration_ms(text, "x") == length


@pytest.mark.parametrize(
    "text", ["", "10", "1.5s", "1w", "1 s", "1S", "9" * 13 + "s", "999999999999d", None, 10, "１s"]
)
def test_other_durations_are_refused(text: object) -> None:
    with pytest.raises(DeployError):
        duration_ms(text, "x")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("dead-letter", "dead-letter"),
        ("halt", "halt"),
        ("retry:3", {"retry": 3, "backoff": "1s"}),
        ("retry:3:250ms", {"retry": 3, "backoff": "250ms"}),
        ('{"retry": 5, "backoff": "2s"}', {"retry": 5, "backoff": "2s"}),
    ],
)
def test_what_to_do_on_an_error_can_be_given_as_a_flag(value: str, expected: object) -> None:
    assert spec(on_error=value).on_error == expected


def test_the_start_is_a_word_an_offset_or_a_time() -> None:
    assert parse_start(None, "f").kind == "earliest"
    assert parse_start("latest", "f").kind == "latest"
    assert parse_start("17", "f").offset == parse_start(17, "f").offset == 17
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert parse_start("2026-01-31T12:00:00Z", "f").time == noon
    assert parse_start("2026-01-31 12:00", "f").time == noon
    assert parse_start("2026-01-31T14:00:00+02:00", "f").time == noon


def test_streams_are_declared_by_config_flag_or_operator_and_the_sink_is_none_of_them() -> None:
    found = spec(
        {"source": "events", "sink": "out", "emits": ["alerts"]},
        [("alerts", True), ("side", True), ("found", False), ("out", False)],
        emits="audit,found",
    )
    assert found.emits == ("alerts", "side", "audit", "found")
    assert found.literal_emits == ()
    assert spec(None, [("found", False)]).literal_emits == ("found",)
