"""The docs tell what is so: they are compared with the code, and their commands with the command line."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from jeet.cli import frame
from jeet.cli.main import NESTED, _find
from jeet.cli.output import Output

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "deploy" / "kubernetes" / "README.md"]


def test_the_generated_parts_are_up_to_date() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import generate
    finally:
        sys.path.pop(0)
    for file, text in generate.generated().items():
        assert (ROOT / "docs" / file).read_text() == text, f"docs/{file} is behind the code: make docs"


def test_the_first_screen_has_the_two_commands_and_the_function() -> None:
    first_screen = (ROOT / "README.md").read_text().splitlines()[:25]
    text = "\n".join(first_screen)
    assert "make demo" in text
    assert "make test" in text
    assert "stream.map(event => {" in text


def test_make_has_the_targets_that_the_readme_names() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def commands(page: Path) -> list[str]:
    """Lines of code blocks that call jeet, and `jeet …` in running text."""
    # What a command printed is no command.
    text = re.sub(r"(<!-- (?:top|doctor) -->).*?(<!-- /)", r"\1\2", page.read_text(), flags=re.DOTALL)
    blocks = re.findall(r"^(?: {4}|)(?:\$ )?(jeet [a-z].*)$", text, re.MULTILINE)
    inline = re.findall(r"`(jeet [a-z_]+[^`]*)`", text)
    return [line for line in [*blocks, *inline] if not line.startswith("jeet COMMAND")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_the_docs_exists(page: Path) -> None:
    for line in commands(page):
        words = [word for word in shlex.split(re.split(r"\s{3,}|[,;]", line)[0])[1:] if word != "…"]
        if words == ["dlq"] or words[0] in ("help", "version"):
            continue
        path, _, _ = _find(words, Output())
        assert path[0] == words[0].replace("-", "_") or path[0] in NESTED


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_command_that_a_remedy_names_exists() -> None:
    """In messages and in the view jeet.diagnosis: what follows a colon, semicolon or backtick there is to be typed."""
    named: dict[str, str] = {}
    for path in [*(ROOT / "platform" / "jeet").rglob("*.py"), *(ROOT / "sql").rglob("*.sql")]:
        text = re.sub(r"\"\n\s*f?\"", "", path.read_text())  # strings that go on in the next line
        for word in re.findall(r"(?:: |; |`)jeet ([a-z_]+)", text):
            named.setdefault(word, path.name)
    assert {"deploy", "status", "dlq", "worker", "migrate"} <= set(named)
    for word, file in named.items():
        if word not in (*NESTED, "tables"):
            assert _find([word], Output())[0] == [word], file


def test_the_examples_open_with_what_they_take_and_emit() -> None:
    examples = sorted((ROOT / "functions").rglob("*.js"))
    assert len(examples) >= 14
    for path in examples:
        assert path.read_text().startswith("// Takes "), path.name


def test_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for name in re.findall(r"`((?:sql|platform|functions|tests|deploy)/[\w./]+)`", text):
        assert (ROOT / name).exists(), name


def captured(name: str) -> list[str]:
    text = (ROOT / "docs" / "diagnosis.md").read_text()
    (block,) = re.findall(rf"<!-- {name} -->\n```text\n\$ jeet {name}\n(.*?)\n```", text, re.DOTALL)
    return list(block.split("\n"))


def test_what_top_is_shown_to_print_has_its_columns() -> None:
    lines = captured("top")
    assert lines[0].startswith("jeet at ")
    for columns in (frame._FUNCTIONS, frame._WORKERS):
        titles = [column.title for column in columns]
        assert any(all(title in line for title in titles) for line in lines), "take it anew: make capture"


def test_what_the_doctor_is_shown_to_print_is_what_its_rules_say() -> None:
    lines = captured("doctor")
    rules = "".join(path.read_text() for path in (ROOT / "sql" / "rules").glob("*.sql")).replace("''", "'")
    count = int(re.match(r"(\d+) findings?, the worst first", lines[0])[1])  # type: ignore[index]
    observations = [line.partition(". ")[2] for line in lines if re.match(r"\d+\. ", line)]
    causes = [line.partition("likely cause")[2].strip() for line in lines if "likely cause" in line]
    assert len(observations) == len(causes) == count > 1
    for text in causes:
        assert f"'{text}'" in rules, f"{text}: take it anew: make capture"
