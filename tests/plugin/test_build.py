"""The plugin is built from pinned sources, to known bytes; a build that cannot go on says what to do in one line."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from .host import PLUGIN, Maker

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "platform" / "plugin"


def script(*arguments: str, folder: Path = SOURCE, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "build_plugin.py"), *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)


def copy_of_the_sources(folder: Path) -> Path:
    """The build in another checkout: platform/plugin, and the folder that it puts the plugin into."""
    target = folder / "platform" / "plugin"
    shutil.copytree(SOURCE, target, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "platform" / "jeet" / "sandbox").mkdir(parents=True)
    return target


def built_by(target: Path) -> Path:
    return target.parent / "jeet" / "sandbox" / "jeet-plugin.wasm"


def recorded() -> str:
    return (SOURCE / "plugin.sha256").read_text().split()[0]


def test_the_plugin_has_the_recorded_hash_and_its_description_says_so() -> None:
    assert hashlib.sha256(PLUGIN.read_bytes()).hexdigest() == recorded()
    info = json.loads(PLUGIN.with_name("plugin.json").read_text())
    assert info["sha256"] == recorded()
    assert info["namespace"] == "jeet-plugin-v1"
    assert set(info) == {"sha256", "namespace", "quickjs", "zig", "inputs"}


def build_requirements(folder: Path, **env: str) -> list[str]:
    code = "import hatchling.build; print(*hatchling.build.get_requires_for_build_wheel(), sep='\\n')"
    env = {**os.environ, **env}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_compiler_is_asked_for_pinned_and_only_when_the_plugin_is_not_in_the_cache(tmp_path: Path) -> None:
    zig = json.loads(PLUGIN.with_name("plugin.json").read_text())["zig"]
    assert build_requirements(ROOT) == []
    assert f"ziglang=={zig}" in build_requirements(ROOT, XDG_CACHE_HOME=str(tmp_path))


def test_the_plugin_tells_the_version_of_its_engine(maker: Maker) -> None:
    with maker.instance() as host:
        text = host.get(host.export("jeet-version"), 16).split(b"\0")[0].decode()
    assert json.loads(PLUGIN.with_name("plugin.json").read_text())["quickjs"].startswith(text)


def test_nothing_of_the_machine_is_in_the_plugin() -> None:
    wasm = PLUGIN.read_bytes()
    for trace in (b"/tmp", b"/home", b"/root", b"jeet-plugin-", b"site-packages", b"ziglang"):
        assert trace not in wasm.replace(b"jeet-plugin-v1", b"").replace(b"jeet-plugin:", b""), trace


def test_a_second_build_comes_from_the_cache(tmp_path: Path) -> None:
    target = copy_of_the_sources(tmp_path)
    # Without the sources at hand, only the cache can give it.
    done = script(folder=target, JEET_QUICKJS_SDIST=str(tmp_path / "none"))
    assert done.returncode == 0, done.stderr
    assert built_by(target).read_bytes() == PLUGIN.read_bytes()


def test_a_damaged_cache_is_not_trusted(tmp_path: Path) -> None:
    target = copy_of_the_sources(tmp_path)
    cache = tmp_path / "cache" / "jeet" / "plugin"
    cache.mkdir(parents=True)
    inputs = json.loads(PLUGIN.with_name("plugin.json").read_text())["inputs"]
    (cache / f"{inputs}.wasm").write_bytes(PLUGIN.read_bytes() + b"\0")
    (cache / f"{inputs}.sha256").write_text(recorded())
    done = script(folder=target, XDG_CACHE_HOME=str(tmp_path / "cache"), JEET_QUICKJS_SDIST=str(tmp_path / "none"))
    assert done.returncode == 1
    assert not built_by(target).exists()


def refused(tmp_path: Path, *, compiler: str | None = None, **env: str) -> str:
    """What the build says of itself. A compiler that only tells its version is enough to come as far as the sources."""
    zig = json.loads(PLUGIN.with_name("plugin.json").read_text())["zig"]
    (tmp_path / "compiler").mkdir()
    (tmp_path / "compiler" / "ziglang.py").write_text(compiler or f"print({zig!r})\n")
    env["PYTHONPATH"] = str(tmp_path / "compiler")
    done = script(folder=copy_of_the_sources(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"), **env)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_sources_that_are_not_the_pinned_ones_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    sdist = tmp_path / "quickjs.tar.gz"
    (tmp_path / "evil.c").write_text("int evil;")
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(tmp_path / "evil.c", "../../evil.c")
    line = refused(tmp_path, JEET_QUICKJS_SDIST=str(sdist))
    assert "is not the pinned quickjs_ng-0.17.0.2.tar.gz" in line
    assert "JEET_QUICKJS_SDIST" in line


def test_a_missing_sdist_is_a_line_that_says_what_to_do(tmp_path: Path) -> None:
    assert "JEET_QUICKJS_SDIST must name" in refused(tmp_path, JEET_QUICKJS_SDIST=str(tmp_path / "none"))


def test_no_way_to_the_index_is_a_line_that_says_what_to_do(tmp_path: Path) -> None:
    line = refused(
        tmp_path,
        PIP_CONFIG_FILE=os.devnull,
        PIP_INDEX_URL=(tmp_path / "no-index").as_uri(),
        PIP_FIND_LINKS="",
        PIP_NO_INDEX="1",
        JEET_QUICKJS_SDIST="",
    )
    assert "cannot download quickjs_ng-0.17.0.2.tar.gz through pip" in line
    assert "set JEET_QUICKJS_SDIST=" in line


def test_a_missing_compiler_is_a_line_that_says_what_to_do(tmp_path: Path) -> None:
    absent = "raise ModuleNotFoundError('No module named ziglang')\n"
    line = refused(tmp_path, compiler=absent, JEET_QUICKJS_SDIST=str(tmp_path / "none"))
    assert "pip install ziglang==" in line


def test_the_wheel_holds_the_plugin_the_guest_and_the_sql(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("jeet-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert archive.read("jeet/sandbox/jeet-plugin.wasm") == PLUGIN.read_bytes()
        assert json.loads(archive.read("jeet/sandbox/plugin.json"))["sha256"] == recorded()
    assert len(names) == len(set(names))
    guest = ROOT / "platform" / "jeet" / "sandbox" / "guest"
    for kept, prefix in ((ROOT / "sql", "jeet/_sql"), (guest, "jeet/sandbox/guest")):
        for path in kept.rglob("*"):
            if path.suffix in (".sql", ".js"):
                assert f"{prefix}/{path.relative_to(kept).as_posix()}" in names


@pytest.mark.torture
def test_two_builds_in_different_places_give_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    for name in ("one", "a longer name with spaces"):
        target = copy_of_the_sources(tmp_path / name)
        done = script(folder=target, XDG_CACHE_HOME=str(tmp_path / name / "cache"), TMPDIR=str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert hashlib.sha256(built_by(target).read_bytes()).hexdigest() == recorded()
