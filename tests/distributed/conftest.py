"""Processes for tests: `mpiexec` of this environment, with a limit on their time, on this machine or on two hosts;
and actors that are killed.

The hosts are network namespaces of this machine, each with its name and its shared memory: messages go over TCP.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hybridml.distributed.servers import training
from hybridml.run import mpiexec
from tests.support.workers import Killing

ROOT = Path(__file__).parent.parent.parent
SECONDS = 120  # until processes that hang are ended: ranks wait with their cores busy
Run = Callable[[int, str], subprocess.CompletedProcess[str]]

# A command on a host, and the same as the launcher calls it: with options of ssh before the host's name.
_ON_HOST = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1; shift
export COMMAND="$*"
exec ip netns exec "$host" unshare -u -i -m bash -c '
hostname "$0"; mount -t tmpfs tmpfs /dev/shm; mount --bind {hosts} /etc/hosts; exec bash -c "$COMMAND"' "$host"
"""


def _launcher() -> str:
    launcher = mpiexec()
    if launcher is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpi4py and mpiexec: pip install 'hybridml[mpi]'")
    return launcher


def _running(command: Callable[[int, str], list[str]], folder: Path) -> Run:
    def run(n: int, text: str) -> subprocess.CompletedProcess[str]:
        script = folder / "script.py"
        script.write_text(text, encoding="utf-8")
        environment = {**os.environ, "HYBRIDML_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command(n, str(script)),
            env=environment, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def mpi(tmp_path: Path) -> Run:
    """Runs a text as a script in `n` processes of this machine; skips where MPI is missing."""
    launcher = _launcher()
    return _running(lambda n, script: [launcher, "-n", str(n), sys.executable, script], tmp_path)


@pytest.fixture(params=["one machine", "two hosts"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a text as a script in `n` processes, of this machine or of two hosts by turns."""
    if request.param == "one machine":
        found: Run = request.getfixturevalue("mpi")
        return found
    launcher, (agent, names) = _launcher(), request.getfixturevalue("two_hosts")

    def command(n: int, script: str) -> list[str]:
        launched = [launcher, "-launcher", "rsh", "-launcher-exec", agent, "-hosts", ",".join(names), "-n", str(n)]
        return [agent, names[0], *launched, sys.executable, script]

    return _running(command, tmp_path)


@pytest.fixture(scope="session")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, tuple[str, str]]]:
    """The program that runs a command on a host, and the names of two; skips where they cannot be made."""
    if not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("two hosts: needs ip and unshare")
    number = os.getpid() % 100_000
    names = f"hmA{number}", f"hmB{number}"
    folder = tmp_path_factory.mktemp("hosts")
    hosts, agent = folder / "hosts", folder / "on_host"
    hosts.write_text(f"127.0.0.1 localhost\n10.77.0.1 {names[0]}\n10.77.0.2 {names[1]}\n")
    agent.write_text(_ON_HOST.format(hosts=hosts))
    agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
    try:
        made = [f"netns add {name}" for name in names]
        made += [f"-n {names[0]} link add wire type veth peer name wire netns {names[1]}"]
        for k, name in enumerate(names):
            made += [f"-n {name} addr add 10.77.0.{k + 1}/24 dev wire"]
            made += [f"-n {name} link set {link} up" for link in ("wire", "lo")]
        for line in made:
            done = subprocess.run(["ip", *line.split()], capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"two hosts: ip {line}: {done.stderr.strip()}")
        for name in names:  # the kernel tells it after a while, and MPI looks once
            for _ in range(100):
                if " UP " in subprocess.run(["ip", "-n", name, "-br", "link"], capture_output=True, text=True).stdout:
                    break
                time.sleep(0.05)
        if subprocess.run([str(agent), names[0], "true"], capture_output=True, check=False).returncode:
            pytest.skip("two hosts: namespaces cannot be entered here")
        yield str(agent), names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Killing:
    """Kills actors when their server is at a version: `{3: "shard 1"}`."""

    def plan(kills: dict[int, str]) -> None:
        apply = training.Run.apply

        def kill(run: Any, done: Any) -> None:
            victim = kills.pop(run.server.version, None)
            for actor in [*run.server.shards, *run.crew.workers]:
                if actor.name == victim:
                    actor.kill()
            apply(run, done)

        monkeypatch.setattr(training.Run, "apply", kill)

    return plan
