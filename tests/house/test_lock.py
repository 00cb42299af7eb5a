"""requirements.lock is what pyproject.toml asks for, whole, pinned and with hashes, and names no registry."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def entries() -> dict[str, tuple[Requirement, list[str]]]:
    """Each package of the lock file with its hashes."""
    found = {}
    lines = [line for line in TEXT.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        text, *hashes = line.split("--hash=")
        requirement = Requirement(text.strip())
        found[canonicalize_name(requirement.name)] = (requirement, [each.strip() for each in hashes])
    return found


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(text) for text in project["dependencies"]]


def test_every_package_is_pinned_with_hashes_and_from_nowhere_in_particular() -> None:
    for requirement, hashes in entries().values():
        assert [each.operator for each in requirement.specifier] == ["=="], requirement
        assert "*" not in str(requirement.specifier)
        assert requirement.url is None
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes)
    assert "://" not in TEXT
    assert not re.search(r"^\s*-(?!-hash)", TEXT, re.MULTILINE), "options, such as the address of a registry"


def test_what_the_project_asks_for_is_in_it_in_a_version_that_will_do() -> None:
    locked = entries()
    for wanted in declared():
        pinned, _ = locked[canonicalize_name(wanted.name)]
        (version,) = [each.version for each in pinned.specifier]
        assert wanted.specifier.contains(version, prereleases=True), (wanted, version)


def test_it_has_all_that_those_need_and_nothing_else() -> None:
    locked = entries()
    asked: set[tuple[str, frozenset[str]]] = set()
    waiting = declared()
    while waiting:
        wanted = waiting.pop()
        request = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if request in asked:
            continue
        asked.add(request)
        for text in requires(wanted.name) or []:
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
                waiting.append(inner)
    here = {name for name, (each, _) in locked.items() if each.marker is None or each.marker.evaluate()}
    assert here == {name for name, _ in asked}


def test_the_image_installs_from_it_alone() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip install ([^&|\n]*)", text)
    assert installs
    assert all("--require-hashes -r requirements.lock" in each or "--no-deps" in each for each in installs)
