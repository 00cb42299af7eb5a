"""The QuickJS-NG sources: the pinned sdist, checked by its hash before anything in it is looked at.

`JEET_QUICKJS_SDIST=path` names a copy; otherwise pip's own index settings say where to download it. Nothing of the
sdist's own build is run: pip is asked for the file only, as `pip download` would run that build for its metadata.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

PROJECT = "quickjs-ng"
VERSION = "0.17.0.2"
SDIST_NAME = "quickjs_ng-0.17.0.2.tar.gz"
SDIST_SHA256 = "43d2e48272208721a7aaea8e3f02d4b9318f12ef20cc4f5421b59d9a470706ef"
SOURCE_FOLDER = "quickjs_ng-0.17.0.2/upstream-quickjs/"
MAX_SDIST_BYTES = 16 << 20

# Runs in a process of its own, as pip's modules are not an interface; when they change, the error says what to do.
_FIND_AND_FETCH = """
import sys
from pip._internal.commands import create_command
project, version, wanted, sha256, target, limit = sys.argv[1:]
command = create_command("download")
options, _ = command.parse_args(["--no-deps", "--no-binary", ":all:", "--disable-pip-version-check", project])
with command.main_context():
    session = command.get_default_session(options)
    finder = command._build_package_finder(options, session)
    found = finder.find_all_candidates(project)
    links = [c.link for c in found if str(c.version) == version and c.link.filename == wanted]
    if not links:
        sys.exit(f"no index in pip's configuration has {wanted}")
    links.sort(key=lambda link: link.scheme != "file")
    response = session.get(links[0].url_without_fragment, headers={"Accept-Encoding": "identity"})
    response.raise_for_status()
    content = response.content
    if len(content) > int(limit):
        sys.exit(f"{wanted} is larger than it should be")
    with open(target, "wb") as out:
        out.write(content)
"""


class SourceUnavailable(Exception):
    """The sources could not be had, or are not the pinned ones; the message is one line and says what to do."""


def read_sources(scratch: Path) -> dict[str, bytes]:
    """The C files and headers of the pinned QuickJS-NG, by name."""
    given = os.environ.get("JEET_QUICKJS_SDIST")
    path = Path(given).expanduser() if given else _download(scratch / SDIST_NAME)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SourceUnavailable(
            f"cannot read {path} ({error.strerror}): JEET_QUICKJS_SDIST must name {SDIST_NAME}"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != SDIST_SHA256:
        raise SourceUnavailable(
            f"{path} is not the pinned {SDIST_NAME}: its SHA-256 is {found}, expected {SDIST_SHA256}; "
            "nothing was unpacked. Set JEET_QUICKJS_SDIST to the right file"
        )
    sources: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        for member in archive:
            name = member.name.removeprefix(SOURCE_FOLDER)
            if member.isfile() and name != member.name and "/" not in name and name.endswith((".c", ".h")):
                reader = archive.extractfile(member)
                assert reader is not None  # it is a regular file
                sources[name] = reader.read()
    return sources


def _download(target: Path) -> Path:
    command = [sys.executable, "-c", _FIND_AND_FETCH, PROJECT, VERSION, SDIST_NAME, SDIST_SHA256, str(target)]
    outcome = subprocess.run([*command, str(MAX_SDIST_BYTES)], capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        lines = outcome.stderr.strip().splitlines()
        raise SourceUnavailable(
            f"cannot download {SDIST_NAME} through pip ({lines[-1] if lines else 'no message'}): "
            f"check pip's index settings, or fetch that file elsewhere and set JEET_QUICKJS_SDIST=/path/{SDIST_NAME}"
        )
    return target
