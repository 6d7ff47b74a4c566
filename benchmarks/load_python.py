"""The engine for machines without a C compiler: epoll, `recv_into` one buffer, `send` views of prepared calls.

It compares the first answer of each read with the template, ids apart, and counts bytes for the rest. It is the
limit for the fastest servers: a figure made with it says so.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Sequence
from socket import socket

from benchmarks.wire import ID_SIZE, Tally, Wire

NAME = "Python epoll"
_PATIENCE = 5.0  # seconds without any answer after which a run ends
_RUN = 65536  # calls in a prepared run: ids that differ in their last two bytes only


class Run:
    """Endless prepared calls whose ids grow: runs of 65,536 calls, whose ids are written by whole columns of bytes."""

    def __init__(self, request: bytes, id_at: int | None) -> None:
        self.size = len(request)
        self._id_at = id_at
        self._runs: dict[int, memoryview] = {}
        self._base = bytearray(request * _RUN)
        if id_at is not None:
            self._column(self._base, 7, bytes(range(256)) * 256)
            self._column(self._base, 6, b"".join(bytes([value]) * 256 for value in range(256)))

    def _column(self, calls: bytearray, byte: int, values: bytes) -> None:
        calls[(self._id_at or 0) + byte :: self.size] = values

    def _run(self, epoch: int) -> memoryview:
        if epoch not in self._runs:
            calls = bytearray(self._base)
            for byte, value in enumerate(epoch.to_bytes(ID_SIZE - 2, "big")):
                self._column(calls, byte, bytes([value]) * _RUN)
            self._runs[epoch] = memoryview(calls)
        return self._runs[epoch]

    def take(self, first: int, count: int) -> memoryview:
        """Return the bytes of `count` calls from id `first` on, or of as many as are left in that run."""
        if self._id_at is None:
            epoch, start = 0, 0
            if not self._runs:
                self._runs[0] = memoryview(self._base)
        else:
            epoch, start = divmod(first, _RUN)
        return self._run(epoch)[start * self.size : (start + count) * self.size]


class _Line:
    """One connection: its next id, its calls in flight as (when sent, how many), and the bytes of a cut answer."""

    def __init__(self, sock: socket, next_id: int) -> None:
        self.sock = sock
        self.next_id = next_id
        self.waiting: deque[list[int]] = deque()
        self.part = 0

    def call(self, run: Run, count: int, at: int) -> None:
        self.waiting.append([at, count])
        while count:
            calls = run.take(self.next_id, count)
            if self.sock.send(calls) != len(calls):
                msg = "the server does not read: a send was cut"
                raise BlockingIOError(msg)
            made = len(calls) // run.size
            self.next_id += made
            count -= made

    def answered(self, count: int, at: int, latencies: list[tuple[int, int]]) -> None:
        while count:
            sent = self.waiting[0]
            taken = min(count, sent[1])
            latencies.append((at - sent[0], taken))
            sent[1] -= taken
            count -= taken
            if not sent[1]:
                self.waiting.popleft()

    @property
    def in_flight(self) -> int:
        return sum(count for _, count in self.waiting)


def run(sockets: Sequence[socket], ids: list[int], wire: Wire, depth: int, seconds: float) -> Tally:
    """Drive the connections for some seconds, `depth` calls in flight on each; moves `ids` on to each one's next id."""
    calls = Run(wire.request, wire.request_id_at)
    lines = {sock.fileno(): _Line(sock, first) for sock, first in zip(sockets, ids, strict=True)}
    poll = select.epoll()
    start = time.monotonic_ns()
    for number, line in lines.items():
        poll.register(number, select.EPOLLIN)
        line.call(calls, depth, start)
    latencies, wrong = _loop(poll, lines, wire, calls, start + int(seconds * 1e9))
    elapsed = time.monotonic_ns() - start
    poll.close()
    ids[:] = [line.next_id for line in lines.values()]
    wrong += sum(line.in_flight for line in lines.values())
    latencies.sort()
    total = sum(count for _, count in latencies)
    return Tally(total, wrong, elapsed, _percentile(latencies, total * 0.50), _percentile(latencies, total * 0.99))


def _loop(
    poll: select.epoll, lines: dict[int, _Line], wire: Wire, calls: Run, end: int
) -> tuple[list[tuple[int, int]], int]:
    latencies: list[tuple[int, int]] = []
    buffer = bytearray(1 << 18)
    size, mask = len(wire.answer), int.from_bytes(wire.mask, "big")
    expected = int.from_bytes(wire.answer, "big") & mask
    clock = time.monotonic_ns
    wrong = received = 0
    while clock() < end or any(line.waiting for line in lines.values()):
        ready = poll.poll(_PATIENCE)
        for number, _ in ready:
            line = lines[number]
            received = line.sock.recv_into(buffer)
            if not line.part:
                wrong += received >= size and int.from_bytes(buffer[:size], "big") & mask != expected
            done, line.part = divmod(line.part + received, size)
            at = clock()
            line.answered(done, at, latencies)
            if done and at < end:
                line.call(calls, done, at)
        if not ready or not received:
            break  # silence or a closed connection: what is in flight counts as wrong
    return latencies, wrong


def _percentile(latencies: Sequence[tuple[int, int]], rank: float) -> float:
    seen = 0
    for latency, count in latencies:
        seen += count
        if seen >= rank:
            return latency
    return 0.0
