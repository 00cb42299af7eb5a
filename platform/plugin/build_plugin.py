"""Builds the Javy plugin: C on QuickJS-NG, compiled to one wasm module by the `ziglang` package.

Promise: the same inputs (these sources, the pinned sdist, the flags, the zig version) give the same bytes on any
machine; no compiler but `ziglang` is used. The result is cached by a hash of all inputs, so that a second build takes
no time. Run as a script, it puts the plugin beside the sandbox of this checkout; `--record` also writes its hash to
plugin.sha256.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import adapt_quickjs
import quickjs_source
from wasm_sections import add_custom_section, without_exports

HERE = Path(__file__).resolve().parent
PLACE = HERE.parent / "jeet" / "sandbox"
WASM_NAME = "jeet-plugin.wasm"
INFO_NAME = "plugin.json"

NAMESPACE = "jeet-plugin-v1"
ZIG_VERSION = "0.17.1"  # decides the bytes of the plugin

# What a compilation needs: the compiler, and pip to fetch the sources.
REQUIREMENTS = (f"ziglang=={ZIG_VERSION}", "pip>=23.1")

# C's stack in linear memory lies first, so that running out of it traps and never overwrites data.
C_STACK_BYTES = 1 << 20

FLAGS = ("-target", "wasm32-wasi", "-mexec-model=reactor", "-O3", "-DNDEBUG", "-D_GNU_SOURCE", "-fvisibility=hidden")
OWN_FLAGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-DJEET_C_STACK_BYTES={C_STACK_BYTES}", "-Iquickjs")
THIRD_PARTY_FLAGS = ("-w", "-include", "src/charge.h", "-Iquickjs")
LINK_FLAGS = ("-nostartfiles", "-Wl,--no-entry", "-Wl,--strip-all", f"-Wl,-z,stack-size={C_STACK_BYTES}")
THIRD_PARTY_UNITS = ("quickjs.c", "libregexp.c", "libunicode.c", "dtoa.c")
# initialize-runtime runs the constructors itself, as hosts of Javy plugins call nothing else before it.
UNWANTED_EXPORTS = ("_initialize",)


class BuildFailed(Exception):
    """The plugin could not be built; the message is one line and says what to do."""


@dataclass(frozen=True)
class Plugin:
    """A built plugin: where its file is, and what is said about it in plugin.json."""

    path: Path
    info: dict[str, str]

    def place(self, folder: Path) -> None:
        """Copy the plugin and its description into a folder, each at once or not at all."""
        _write(folder / WASM_NAME, self.path.read_bytes())
        _write(folder / INFO_NAME, (json.dumps(self.info, indent=2) + "\n").encode())


def build() -> Plugin:
    """The plugin for the sources as they are now, from the cache if it is there."""
    inputs = inputs_hash()
    folder = _cache_folder()
    cached = folder / f"{inputs}.wasm"
    if not _is_intact(cached):
        wasm = _compile(inputs)
        _write(cached.with_suffix(".sha256"), hashlib.sha256(wasm).hexdigest().encode())
        _write(cached, wasm)
    info = {
        "sha256": hashlib.sha256(cached.read_bytes()).hexdigest(),
        "namespace": NAMESPACE,
        "quickjs": quickjs_source.VERSION,
        "zig": ZIG_VERSION,
        "inputs": inputs,
    }
    return Plugin(cached, info)


def is_cached() -> bool:
    """Whether build() needs neither compiler nor sources."""
    return _is_intact(_cache_folder() / f"{inputs_hash()}.wasm")


def inputs_hash() -> str:
    """A hash of everything that decides the bytes of the plugin."""
    digest = hashlib.sha256()
    for flags in (FLAGS, OWN_FLAGS, THIRD_PARTY_FLAGS, LINK_FLAGS, THIRD_PARTY_UNITS, UNWANTED_EXPORTS):
        digest.update(repr(flags).encode())
    digest.update(f"{NAMESPACE} {ZIG_VERSION} {quickjs_source.SDIST_SHA256}".encode())
    for path in (*_own_sources(), HERE / "wasm_sections.py", HERE / "adapt_quickjs.py"):
        digest.update(f"{path.name} {hashlib.sha256(_text(path)).hexdigest()}\n".encode())
    return digest.hexdigest()


def recorded_sha256() -> str:
    """The hash that the plugin of this tree is known to have."""
    return (HERE / "plugin.sha256").read_text().split()[0]


def _own_sources() -> list[Path]:
    return sorted([*(HERE / "src").glob("*.c"), *(HERE / "src").glob("*.h")], key=lambda path: path.name)


def _text(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n")  # a checkout may have changed the line ends


def _compile(inputs: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="jeet-plugin-") as name:
        scratch = Path(name)
        zig = Zig(scratch)
        (scratch / "quickjs").mkdir()
        (scratch / "src").mkdir()
        try:
            sources = quickjs_source.read_sources(scratch)
        except quickjs_source.SourceUnavailable as error:
            raise BuildFailed(str(error)) from error
        for file, content in sources.items():
            (scratch / "quickjs" / file).write_bytes(adapt_quickjs.adapt(file, content.decode()).encode())
        for path in _own_sources():
            (scratch / "src" / path.name).write_bytes(_text(path))
        # Relative paths only: what the compiler is told is the same on every machine.
        third_party: list[tuple[str, tuple[str, ...]]] = [
            (f"quickjs/{unit}", THIRD_PARTY_FLAGS) for unit in THIRD_PARTY_UNITS
        ]
        own: list[tuple[str, tuple[str, ...]]] = [
            (f"src/{path.name}", OWN_FLAGS) for path in _own_sources() if path.suffix == ".c"
        ]
        objects = [f"{unit.replace('/', '-')}.o" for unit, _ in third_party + own]
        commands = [
            ["cc", *FLAGS, *flags, "-c", unit, "-o", target]
            for (unit, flags), target in zip(third_party + own, objects, strict=True)
        ]
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(zig, commands))
        zig(["cc", *FLAGS, *LINK_FLAGS, "-o", "plugin.wasm", *objects])
        wasm = without_exports((scratch / "plugin.wasm").read_bytes(), UNWANTED_EXPORTS)
        return add_custom_section(wasm, "import_namespace", NAMESPACE.encode())


class Zig:
    """Runs zig in the scratch folder; its caches live and die with the folder."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.env = {
            **os.environ,
            "ZIG_GLOBAL_CACHE_DIR": str(scratch / "zig-global"),
            "ZIG_LOCAL_CACHE_DIR": str(scratch / "zig-local"),
        }
        version = self(["version"]).strip()
        if version != ZIG_VERSION:
            raise BuildFailed(
                f"ziglang {version} is installed, but the plugin is built by {ZIG_VERSION}: {_INSTALL_ZIG}"
            )

    def __call__(self, arguments: list[str]) -> str:
        command = [sys.executable, "-m", "ziglang", *arguments]
        outcome = subprocess.run(command, cwd=self.scratch, env=self.env, capture_output=True, text=True, check=False)
        if outcome.returncode == 0:
            return outcome.stdout
        if "No module named ziglang" in outcome.stderr:
            raise BuildFailed(f"the plugin is compiled by the package ziglang, which is missing: {_INSTALL_ZIG}")
        lines = [line for line in outcome.stderr.splitlines() if "error" in line] or outcome.stderr.splitlines()
        raise BuildFailed(
            f"zig {arguments[-3] if '-c' in arguments else arguments[0]} failed: {lines[0] if lines else 'no message'}"
        )


_INSTALL_ZIG = f"pip install ziglang=={ZIG_VERSION} (or build with pip's isolation, which does it)"


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "jeet" / "plugin"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass  # no home to write to, as in some containers: build without a cache
    return Path(tempfile.mkdtemp(prefix="jeet-plugin-built-"))


def _is_intact(cached: Path) -> bool:
    try:
        recorded = cached.with_suffix(".sha256").read_text()
        return hashlib.sha256(cached.read_bytes()).hexdigest() == recorded
    except FileNotFoundError:
        return False


def _write(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as out:
        out.write(content)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def main() -> int:
    """Build the plugin into this checkout."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--record", action="store_true", help="write the hash to plugin.sha256")
    arguments = parser.parse_args()
    try:
        plugin = build()
    except BuildFailed as error:
        print(f"jeet: the Javy plugin was not built: {error}", file=sys.stderr)
        return 1
    plugin.place(PLACE)
    if arguments.record:
        _write(HERE / "plugin.sha256", f"{plugin.info['sha256']}  {WASM_NAME}\n".encode())
    print(f"{PLACE / WASM_NAME} sha256 {plugin.info['sha256']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
