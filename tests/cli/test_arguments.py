"""The command line understands every argument before anything runs, and keeps text as it was typed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from jeet.cli import main
from jeet.cli.command import command
from jeet.cli.group import Group
from jeet.cli.output import Done, Output

RAN: list[dict[str, Any]] = []


class Probe(Group):
    """Commands that tell what reached them"""

    @command
    def probe(
        self,
        name: Annotated[str, "a name"],
        extra: Annotated[str, "another"] = "none",
        *,
        text: Annotated[str | None, "some text"] = None,
        count: Annotated[int, "how many"] = 8,
        ratio: Annotated[float | None, "a share"] = None,
        path: Annotated[Path | None, "a file"] = None,
        level: Annotated[Literal["low", "high"], "how loud"] = "low",
        async_: Annotated[bool, "do not wait"] = False,
    ) -> Done:
        """Tell what was given."""
        given = {k: v for k, v in locals().items() if k != "self"}
        RAN.append(given)
        return Done("ran", {k: str(v) for k, v in given.items()})

    @command
    def many(self, *ids: Annotated[int, "ids"], force: Annotated[bool, "really"] = False) -> None:
        """Take all that is left."""
        RAN.append({"ids": ids, "force": force})

    @command
    def feed(self, *, lines: Annotated[str, "events to take"]) -> None:
        """Take what must be given by a flag."""
        RAN.append({"lines": lines})

    @command
    def words(self, *words: Annotated[str, "words"]) -> None:
        """Take all words."""
        RAN.append({"words": words})


@pytest.fixture(autouse=True)
def probe(monkeypatch: pytest.MonkeyPatch) -> None:
    RAN.clear()
    monkeypatch.setattr(main, "_all_groups", lambda: [Probe])


def jeet(*argv: str) -> tuple[int, dict[str, Any]]:
    code = main.run(argv)
    return code, RAN[-1] if RAN else {}


STRANGE = [
    "1e5",
    "None",
    "3.10",
    "0x10",
    "a,b",
    "1_000",
    "True",
    "{}",
    "[1]",
    "'q'",
    "=",
    "a=b",
    "--",
    "-",
    "",
    " ",
    "é",
]


@pytest.mark.parametrize("text", [t for t in STRANGE if t != "--"])
def test_a_positional_text_arrives_as_it_was_typed(text: str) -> None:
    assert jeet("probe", text) == (0, RAN[-1])
    assert RAN[-1]["name"] == text


@pytest.mark.parametrize("text", STRANGE)
def test_a_flags_text_arrives_as_it_was_typed(text: str) -> None:
    code, got = jeet("probe", "x", f"--text={text}")
    assert (code, got["text"]) == (0, text)


@pytest.mark.parametrize("text", ["-x", "--help", "--text=1", "--"])
def test_what_follows_two_dashes_is_never_a_flag(text: str) -> None:
    code, got = jeet("probe", "--", text)
    assert (code, got["name"]) == (0, text)


def test_a_flags_value_may_follow_as_a_word_of_its_own() -> None:
    code, got = jeet("probe", "x", "--text", "y", "--count", "3", "--async", "z")
    assert code == 0
    assert (got["text"], got["count"], got["async_"], got["extra"]) == ("y", 3, True, "z")


def test_a_switch_before_a_positional_does_not_swallow_it() -> None:
    code, got = jeet("probe", "--json", "--async", "totals")
    assert (code, got["name"], got["async_"]) == (0, "totals", True)


def test_dashes_and_underscores_are_the_same_in_flags() -> None:
    assert jeet("probe", "--no-async", "x")[1]["async_"] is False


def test_all_that_is_left_goes_to_a_command_that_takes_many() -> None:
    assert jeet("many", "3", "4", "--force")[1] == {"ids": (3, 4), "force": True}


def test_words_after_two_dashes_may_look_like_flags_to_a_command_that_takes_many() -> None:
    assert jeet("words", "--", "-c", "--x=1", "None")[1] == {"words": ("-c", "--x=1", "None")}


def test_flags_that_are_not_its_own_are_handed_on_by_a_command_that_takes_many_words() -> None:
    assert jeet("words", "-c", "select 1", "--x=1", "--json")[1] == {"words": ("-c", "select 1", "--x=1", "--json")}


def test_json_prints_the_facts_as_one_object(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert jeet("probe", "x", "--json")[0] == 0
    assert capfdbinary.readouterr().out.startswith(b'{"name": "x", ')


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["prob"], "did you mean probe?"),
        (["probe"], "needs NAME: a name"),
        (["feed"], "jeet feed needs --lines=LINES: events to take"),
        (["probe", "x", "--txt=1"], "did you mean --text?"),
        (["probe", "x", "y", "z"], 'no further argument "z"'),
        (["probe", "x", "--count=1e5"], "--count must be a whole number"),
        (["probe", "x", "--count=1_000"], "--count must be a whole number"),
        (["probe", "x", "--ratio=nan"], "--ratio must be a number"),
        (["probe", "x", "--level=loud"], "--level must be one of low, high"),
        (["probe", "x", "--async=maybe"], "--async is on or off"),
        (["probe", "x", "--text"], "--text needs a value"),
        (["probe", "x", "--text", "--async"], "--text needs a value"),
        (["probe", "x", "--text=1", "--text=2"], "given twice"),
        (["probe", "x", "--name=y", "z", "w"], "no further argument"),
        (["many", "x"], "IDS must be a whole number"),
        (["probe", "x", "-text=1"], "no flag -text"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_runs(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(argv) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("jeet: ")
    assert error.count("\n") == 1
    assert RAN == []


def test_an_unforeseen_error_is_one_line_without_a_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode(self: Output, result: object) -> None:
        raise ValueError("cannot use postgres://me:secret@host/db\nnor this")

    monkeypatch.setattr(Output, "show", explode)
    assert main.run(["probe", "x"]) == 1
    error = capsys.readouterr().err
    assert "secret" not in error
    assert error.count("\n") == 1
