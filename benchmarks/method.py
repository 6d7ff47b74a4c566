"""How a row is measured: fresh processes, pinned cores, alternating rounds (A B A B ...), medians with their spread.

Ratios are paired: round by round, then the median, so that a machine that drifts hits both sides. Judges figures,
prints nothing, writes no file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import rivals
from benchmarks.load import HOST, Figures, Load
from benchmarks.rows import Bar, Contestant, Row

SERVER_CORE, DRIVER_CORE = 0, 1
_START = 20.0  # seconds a server may take until it accepts
_SLACK = 30.0  # seconds a driver may take beyond what it measures

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Spread:
    """The median of some rounds, their extremes, and the share of rounds above 1 (for ratios)."""

    median: float
    low: float
    high: float
    above_one: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Spread of some values, at least one."""
        above = sum(value > 1 for value in values) / len(values)
        return cls(statistics.median(values), min(values), max(values), above)


@dataclasses.dataclass(frozen=True)
class Result:
    """A row as it was measured: each contestant's figures, round by round, and why the missing ones are missing."""

    row: Row
    when: str
    machine: dict[str, str]
    versions: dict[str, dict[str, str]]
    rounds: dict[str, list[Figures]]
    missing: dict[str, str]

    def values(self, contestant: Contestant) -> list[float]:
        """Return the row's metric for each round: calls/s, or microseconds."""
        figures = self.rounds.get(contestant.key, [])
        return [{"rate": one.rate, "p50": one.p50, "cpu": one.cpu or 0.0}[self.row.metric] for one in figures]

    def paired(self, against: Contestant, how: str = "ratio") -> Spread | None:
        """Return the first contestant's metric over (or less) another's, round by round; None: one is missing."""
        pairs = list(zip(self.values(self.row.contestants[0]), self.values(against), strict=False))
        return Spread.of([a / b if how == "ratio" else a - b for a, b in pairs]) if pairs else None

    def reached(self, bar: Bar) -> tuple[float, bool] | None:
        """Return what the first contestant has for `bar`, and whether it is enough; None: not measured."""
        if bar.against is None:
            values = self.values(self.row.contestants[0])
            found = Spread.of(values) if values else None
        else:
            found = self.paired(bar.against, bar.how)
        if found is None:
            return None
        enough = found.median >= bar.value if self.row.metric == "rate" else found.median <= bar.value
        return found.median, enough


def machine() -> dict[str, str]:
    """Describe this machine and its load, for the reader of a figure."""
    told = Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*:\s*(.+)", told)
    return {
        "cpu": model[1] if model else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",  # without the builder's own suffix
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load average before": f"{os.getloadavg()[0]:.2f}",
    }


def measure(row: Row, *, rounds: int = 5, seconds: float = 0.5, progress: Progress = lambda _: None) -> Result:
    """Measure a row in alternating rounds of `seconds` each.

    Raises CalledProcessError or TimeoutExpired when a driver fails, TimeoutError when a server does not come up.
    """
    about = machine()
    missing = {one.key: why for one in row.contestants if (why := _missing(one))}
    present = [one for one in row.contestants if one.key not in missing]
    figures: dict[str, list[Figures]] = {one.key: [] for one in present}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(_server(name)) for name in dict.fromkeys(one.rival for one in present)}
        for number in range(rounds):
            for one in present:
                progress(f"{row.name}: round {number + 1} of {rounds}: {one.key}")
                port, pid = servers[one.rival]
                load = Load(port, row.connections, row.in_flight, seconds, one.procedure, one.engine, pid)
                figures[one.key].append(_drive(one.rival, load))
    when = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    versions = {one.rival: dict(rivals.find(one.rival).versions()) for one in present}
    return Result(row, when, about, versions, figures, missing)


def _missing(contestant: Contestant) -> str | None:
    rival = rivals.find(contestant.rival)
    if contestant.engine == "c" and rivals.find("echo_c").missing() is not None:
        return "no C compiler (cc)"
    return rival.missing()


@contextlib.contextmanager
def _pinned(core: int) -> Iterator[None]:
    """Start processes on one core, which they inherit; does nothing where the system or the machine lacks it."""
    if not hasattr(os, "sched_setaffinity") or core not in os.sched_getaffinity(0):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _server(name: str) -> Iterator[tuple[int, int | None]]:
    """Run a rival's server in a process of its own on the server's core; yields its port and process id."""
    with socket.create_server((HOST, 0)) as free:
        port: int = free.getsockname()[1]
    command = rivals.find(name).command(port)
    if command is None:
        yield port, None
        return
    with _pinned(SERVER_CORE):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait(port, process)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    msg = f"this server does not accept connections on port {port}: {process.args!r}"
    raise TimeoutError(msg)


def _drive(name: str, load: Load) -> Figures:
    command = [sys.executable, "-m", "benchmarks.drive", name, json.dumps(dataclasses.asdict(load))]
    with _pinned(DRIVER_CORE):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        output, _ = process.communicate(timeout=load.seconds + _SLACK)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Figures(**json.loads(output))
