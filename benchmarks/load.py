"""The load generator: what one run is asked for (`Load`), what it found (`Figures`), and the three ways to make calls.

`replay` sends prepared bytes over many connections and compares every answer (C) or the first and last (Python);
`sequential` and `concurrent` time real clients. Nothing here knows a protocol: a rival says what to send.
Must not import any rival or rpcfast, so that a driver process loads nothing but what it drives.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

from benchmarks import load_c, load_python
from benchmarks.wire import Tally, Wire

HOST = "127.0.0.1"
WARM_UP = 0.15  # seconds of the same load before the measured part, on the same connections
Engine = Literal["auto", "c", "python"]


@dataclasses.dataclass(frozen=True)
class Load:
    """One run against one server: `connections` x `in_flight` calls of `procedure` for `seconds`."""

    port: int
    connections: int = 1
    in_flight: int = 1
    seconds: float = 0.5
    procedure: str = "sum"
    engine: Engine = "auto"
    server_pid: int | None = None  # whose CPU time is reported; None: not reported


@dataclasses.dataclass(frozen=True)
class Figures:
    """What one run found. Latencies and CPU times are in microseconds; `wrong` counts wrong and missing answers."""

    calls: int
    seconds: float
    p50: float
    p99: float
    wrong: int
    cpu: float | None  # of the server, per call
    driver: str  # what made the calls

    @property
    def rate(self) -> float:
        """Calls per second."""
        return self.calls / self.seconds


def cpu_seconds(pid: int | None) -> float:
    """Return the CPU time that a process has used since it began, all threads, user and system (ticks of 10 ms)."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connect(port: int) -> socket.socket:
    """Open one TCP connection as every driver here has it: blocking, without Nagle's delay."""
    sock = socket.create_connection((HOST, port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def replay(load: Load, wire: Wire) -> Figures:
    """Drive the load with prepared bytes, by the C engine when there is a compiler, else by the Python one."""
    engine = load_python if load.engine == "python" or not load_c.available() else load_c
    if load.engine == "c" and engine is not load_c:
        msg = "the C engine was asked for, but no C compiler was found"
        raise RuntimeError(msg)
    sockets = [connect(load.port) for _ in range(load.connections)]
    try:
        for sock in sockets:
            wire.open(sock)
            sock.settimeout(0)
        ids = [1] * len(sockets)
        engine.run(sockets, ids, wire, load.in_flight, WARM_UP)
        before = cpu_seconds(load.server_pid)
        tally = engine.run(sockets, ids, wire, load.in_flight, load.seconds)
        return _figures(load, tally, cpu_seconds(load.server_pid) - before, engine.NAME)
    finally:
        for sock in sockets:
            sock.close()


def sequential(load: Load, call: Callable[[], object], expected: object, driver: str) -> Figures:
    """Time a blocking client, one call after the other."""
    _sequence(call, expected, WARM_UP)
    before = cpu_seconds(load.server_pid)
    latencies, wrong, elapsed = _sequence(call, expected, load.seconds)
    tally = Tally.of(latencies, wrong, elapsed)
    return _figures(load, tally, cpu_seconds(load.server_pid) - before, driver)


async def concurrent(
    load: Load, calls: Sequence[Callable[[], Awaitable[object]]], expected: object, driver: str
) -> Figures:
    """Time asyncio clients: `in_flight` tasks for each of `calls` (one a connection), calling again and again."""
    await _tasks(calls, load.in_flight, expected, WARM_UP)
    before = cpu_seconds(load.server_pid)
    latencies, wrong, elapsed = await _tasks(calls, load.in_flight, expected, load.seconds)
    tally = Tally.of(latencies, wrong, elapsed)
    return _figures(load, tally, cpu_seconds(load.server_pid) - before, driver)


def _figures(load: Load, tally: Tally, cpu: float, driver: str) -> Figures:
    per_call = None if load.server_pid is None else cpu / max(tally.calls, 1) * 1e6
    return Figures(
        tally.calls, tally.nanoseconds / 1e9, tally.p50 / 1e3, tally.p99 / 1e3, tally.wrong, per_call, driver
    )


def _sequence(call: Callable[[], object], expected: object, seconds: float) -> tuple[list[int], int, int]:
    clock = time.perf_counter_ns
    latencies: list[int] = []
    wrong = 0
    start = last = clock()
    end = start + int(seconds * 1e9)
    while last < end:
        wrong += call() != expected
        at = clock()
        latencies.append(at - last)
        last = at
    return latencies, wrong, last - start


async def _tasks(
    calls: Sequence[Callable[[], Awaitable[object]]], in_flight: int, expected: object, seconds: float
) -> tuple[list[int], int, int]:
    clock = time.perf_counter_ns
    latencies: list[int] = []
    wrong = 0
    start = clock()
    end = start + int(seconds * 1e9)

    async def caller(call: Callable[[], Awaitable[object]]) -> None:
        nonlocal wrong
        last = clock()
        while last < end:
            wrong += await call() != expected
            at = clock()
            latencies.append(at - last)
            last = at

    async with asyncio.TaskGroup() as group:
        for call in calls:
            for _ in range(in_flight):
                group.create_task(caller(call))
    return latencies, wrong, clock() - start
