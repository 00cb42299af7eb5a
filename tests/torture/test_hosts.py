"""A host of its own for a worker, in a network namespace, and its cable pulled: no FIN, no RST, nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .cluster import JEET, wait_for
from .figures import Figures
from .proxy import Proxy
from .storm import FUNCTION, Storm

pytestmark = pytest.mark.torture


def _ip(*arguments: str, check: bool = True) -> bool:
    return subprocess.run(["ip", *arguments], capture_output=True, check=check).returncode == 0


def _can_make_hosts() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"jeet-{uuid.uuid4().hex[:8]}"
    made = _ip("netns", "add", name, check=False)
    if made:
        _ip("netns", "delete", name)
    return made


class Host:
    """A network namespace with one cable to this one."""

    def __init__(self, number: int) -> None:
        token = uuid.uuid4().hex[:6]
        self.name, self._here, self._there = f"jeet-{token}", f"jh{token}", f"jt{token}"
        self.near, self.far = f"10.213.{number}.1", f"10.213.{number}.2"
        _ip("netns", "add", self.name)
        _ip("link", "add", self._here, "type", "veth", "peer", "name", self._there)
        _ip("link", "set", self._there, "netns", self.name)
        _ip("addr", "add", f"{self.near}/24", "dev", self._here)
        _ip("link", "set", self._here, "up")
        _ip("-n", self.name, "addr", "add", f"{self.far}/24", "dev", self._there)
        _ip("-n", self.name, "link", "set", self._there, "up")
        _ip("-n", self.name, "link", "set", "lo", "up")

    def pull(self) -> None:
        _ip("link", "set", self._here, "down")

    def plug_in(self) -> None:
        _ip("link", "set", self._here, "up")

    def close(self) -> None:
        _ip("link", "delete", self._here, check=False)
        _ip("netns", "delete", self.name, check=False)


@contextmanager
def _host() -> Iterator[Host]:
    host = Host(os.getpid() % 250)
    try:
        yield host
    finally:
        host.close()


@pytest.mark.skipif(not _can_make_hosts(), reason="making network namespaces needs root and iproute2")
def test_a_host_whose_cable_is_pulled_is_replaced_and_comes_back(
    database_url: str, seed: int, rounds: int, figures: Figures
) -> None:
    takeovers_s: list[float] = []
    with _host() as host, Proxy(database_url, host.near) as proxy, Storm(database_url, seed, workers=1) as storm:
        far = storm.cluster.start("worker", url=proxy.url, command=["ip", "netns", "exec", host.name, JEET])
        for _ in range(rounds):
            storm.cluster.wait_balanced(FUNCTION, 2)
            partitions = wait_for(lambda: storm.cluster.leases_of(far.pid), "leases of the worker on the far host")
            storm.pause(0.0, 0.5)
            host.pull()
            wait_for(lambda: not storm.cluster.leases_of(far.pid), "it has lost its leases")
            takeovers_s.append(storm.until_all_move(partitions))
            host.plug_in()
        storm.cluster.wait_balanced(FUNCTION, 2)
        assert far.poll() is None, "the worker that was cut off has come back by itself"
    storm.tell(figures, "cable of a host pulled", rounds, takeovers_s=takeovers_s)
