"""Writes the parts of the docs that the code knows best: commands, settings, limits, views. `make docs` runs it.

A test compares the result with the files, so that they never tell what is not so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from jeet.cli import help as pages
from jeet.cli.command import is_command
from jeet.cli.main import headed_groups
from jeet.ids import FunctionId, Partition, TaskId
from jeet.limits import REASONS, TABLE
from jeet.settings import Settings
from jeet.telemetry import FIELDS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def commands() -> str:
    """Every command's help page, by noun."""
    parts = ["# Commands", "", "Made from `jeet COMMAND --help`.", ""]
    for prefix, group in headed_groups():
        parts += [f"## {pages.heading(group)}", ""]
        for name, member in vars(group).items():
            if is_command(member):
                title = prefix + name.rstrip("_")
                parts += [f"### jeet {title}", "", "```text", pages.command_page(title, member), "```", ""]
    parts += [
        "## For all commands",
        "",
        "`--json` prints JSON: a list as an array of objects, one thing as an object, many as one object a line.",
        "Arguments stay the text that was typed: a stream may be called `1e5` or `None`. What follows `--` is never",
        "taken for a flag. Results go to stdout, all else to stderr. Exit codes: 0; 1 for an error, which is one line",
        "on stderr; 130 after Ctrl-C; 141 when nobody reads stdout any more (`| head`).",
        "",
    ]
    return "\n".join(parts)


def settings() -> str:
    """A table of all settings with their defaults."""
    tree = ast.parse((ROOT / "platform" / "jeet" / "settings.py").read_text())
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings"]
    told: dict[str, str] = {}
    for field, comment in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(comment, ast.Expr) and isinstance(field.target, ast.Name):
            told[field.target.id] = str(ast.literal_eval(comment.value))
    special = {"home": "`~/.jeet`; for root `/var/lib/jeet`", "lanes": "the number of CPUs, at least 2"}
    rows = ["| variable | default | meaning |", "| --- | --- | --- |"]
    for spec in fields(Settings):
        default = special.get(spec.name) or ("" if spec.default is None else f"{spec.default}")
        rows.append(f"| `JEET_{spec.name.upper()}` | {default} | {told[spec.name]} |")
    return "\n".join(rows)


def limits() -> str:
    """Tables of the limits, by what they are limits of, and of the other reasons for a refusal."""
    parts: list[str] = []
    for scope, title in LIMIT_SCOPES.items():
        parts += [
            f"### {title}",
            "",
            "| limit | default | bounds | enforced by | error |",
            "| --- | --- | --- | --- | --- |",
        ]
        for limit in TABLE:
            if limit.scope == scope:
                default = f"{limit.default:,} {limit.unit}".strip()
                setting = f"; `{limit.setting}`" if limit.setting else ""
                parts.append(f"| `{limit.name}` | {default}{setting} | {limit.what} | {limit.where} | {limit.error} |")
        parts.append("")
    parts += ["### Other reasons", "", "| code | SQLSTATE | an event is refused because |", "| --- | --- | --- |"]
    parts += [f"| `{reason.code}` | {reason.sqlstate or ''} | {reason.what} |" for reason in REASONS]
    return "\n".join(parts)


LIMIT_SCOPES = {
    "event": "Of an event",
    "stream": "Of a stream",
    "function": "Of a function, when it is deployed",
    "run": "Of a function, while it runs",
}


def views() -> str:
    """Each view with its columns, as their comments in the database say."""
    parts = []
    for path in sorted((ROOT / "sql" / "views").glob("*.sql")):
        text = path.read_text()
        (about,) = re.findall(r"comment on view jeet\.\w+ is '((?:[^']|'')*)';", text)
        columns = re.findall(r"comment on column jeet\.\w+\.\"?(\w+)\"? is '((?:[^']|'')*)';", text)
        parts += [
            f"### jeet.{path.stem}",
            "",
            f"{_unquoted(about)}.",
            "",
            "| column | |",
            "| --- | --- |",
        ]
        parts += [f"| `{name}` | {_unquoted(meaning)} |" for name, meaning in columns]
        parts.append("")
    return "\n".join(parts).rstrip()


def metrics() -> str:
    """What /metrics of workers and coordinators says."""
    from jeet.observe.collector import Look
    from jeet.observe.figures import Figures, TaskName
    from jeet.observe.metrics import OF_THE_WHOLE, WorkerMetrics

    figures = Figures()
    figures.of(TaskId(0), FunctionId(0), TaskName("", 0, Partition(0)), 0.0)
    worker = WorkerMetrics(figures, lambda: Look((), 0, 0, 0, 0.0), "", "")
    rows = ["| name | labels | meaning |", "| --- | --- | --- |", "| **of each worker** | | |"]
    for family in worker.collect():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = ", ".join(f"`{name}`" for name in family.samples[0].labels)
        rows.append(f"| `{family.name}{suffix}` | {labels} | {family.documentation} |")
    rows.append("| **of each coordinator, about the whole** | | |")
    for name, (names, told) in OF_THE_WHOLE.items():
        rows.append(f"| `{name}` | {', '.join(f'`{label}`' for label in names)} | {told} |")
    return "\n".join(rows)


def _unquoted(text: str) -> str:
    """What a string of SQL stands for."""
    return text.replace("''", "'")


def log_fields() -> str:
    """What the fields of log lines mean."""
    rows = ["| field | meaning |", "| --- | --- |"]
    return "\n".join([*rows, *(f"| `{name}` | {meaning} |" for name, meaning in FIELDS.items())])


def rules() -> str:
    """Each rule of the doctor, in the order in which findings are told, with its thresholds."""
    text = (ROOT / "sql" / "functions" / "findings.sql").read_text()
    rows = ["| rule | speaks when | thresholds |", "| --- | --- | --- |"]
    for name in re.findall(r"jeet_internal\.rule_(\w+) r", text):
        rule = (ROOT / "sql" / "rules" / f"{name}.sql").read_text()
        head = re.match(r"((?:--.*\n)+)", rule)
        assert head is not None, f"sql/rules/{name}.sql opens with what it tells"
        about = " ".join(line.removeprefix("-- ") for line in head[1].splitlines())
        used = dict.fromkeys(re.findall(r"threshold(?:_span)?\('(\w+)'\)", rule))
        rows.append(f"| `{name}` | {about} | {', '.join(f'`{each}`' for each in used)} |")
    rows += [f"| `{name}` | {about} | {used} |" for name, about, used in _OF_CLIENT]
    return "\n".join(rows)


def thresholds() -> str:
    """From where on rules speak."""
    text = (ROOT / "sql" / "views" / "thresholds.sql").read_text()
    found = re.findall(r"\('(\w+)', ([\d.]+)(?:::float8)?, '([\w/]+)', '((?:[^']|'')+)'\)", text)
    rows = ["| threshold | preset | unit | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join(
        [*rows, *(f"| `{n}` | {v} | {'' if u == 'share' else u} | {_unquoted(m)} |" for n, v, u, m in found)]
    )


_OF_CLIENT = (
    (
        "pooler",
        "The address leads through a pooler in transaction mode; workers that are given it refuse to start.",
        "",
    ),
)
SECTIONS: dict[str, tuple[str, Callable[[], str]]] = {
    "settings": ("operations.md", settings),
    "rules": ("diagnosis.md", rules),
    "fields": ("operations.md", log_fields),
    "thresholds": ("diagnosis.md", thresholds),
    "limits": ("limits.md", limits),
    "views": ("sql.md", views),
    "metrics": ("figures.md", metrics),
}


def generated() -> dict[str, str]:
    """File name → what it should hold."""
    result = {"cli.md": commands()}
    for name, (file, make) in SECTIONS.items():
        text = result.get(file) or (HERE / file).read_text()
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"docs/{file} has no section {name}")
        result[file] = pattern.sub(lambda match, make=make: f"{match[1]}{make()}\n{match[2]}", text)
    return result


if __name__ == "__main__":
    for file, text in generated().items():
        (HERE / file).write_text(text)
