"""Calls `sum` for a while over one way, checks every answer, and says how long each took. Prints nothing."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from time import perf_counter
from typing import Final, NamedTuple

import msgspec

from rpcfast.cli.failure import REMOTE, Failure
from rpcfast.client import AsyncClient, Client
from rpcfast.server import Server, new_event_loop
from rpcfast.transport.stream import connect_blocking
from rpcfast.transport.target import parse_target

__all__ = ["IN_FLIGHT", "Figures", "async_client", "client", "json_pipelined", "json_sequential"]

IN_FLIGHT: Final = 256
SECONDS: Final = 0.6
"""How long each way is measured."""
WARM_UP: Final = 50
RECEIVE_SIZE: Final = 256 * 1024


class Figures(NamedTuple):
    """What was measured: the seconds that each call took, and those that all took together."""

    latencies: list[float]
    seconds: float

    @property
    def rate(self) -> float:
        """Calls a second."""
        return len(self.latencies) / self.seconds

    def quantile(self, part: float) -> float:
        """The time within which `part` of the calls were answered, in seconds."""
        return sorted(self.latencies)[int(part * (len(self.latencies) - 1))]


def client(target: str) -> Figures:
    """The blocking client, one call after the other."""
    with Client(target) as caller:
        return _sequential(lambda number: _check(number, caller.sum(number, 1)))


def _sequential(call: Callable[[int], object]) -> Figures:
    for number in range(WARM_UP):
        call(number)
    latencies: list[float] = []
    begin = before = perf_counter()
    for number in itertools.count():
        call(number)
        now = perf_counter()
        latencies.append(now - before)
        before = now
        if now - begin >= SECONDS:
            break
    return Figures(latencies, before - begin)


def _check(number: int, answer: object) -> None:
    if answer != number + 1:
        raise Failure(f"error: sum({number}, 1) was answered with {answer!r}", REMOTE)


def async_client(target: str | Server) -> Figures:
    """The asynchronous client, with `IN_FLIGHT` calls at any time."""
    with asyncio.Runner(loop_factory=new_event_loop("auto")) as runner:
        return runner.run(_concurrent(target))


async def _concurrent(target: str | Server) -> Figures:
    latencies: list[float] = []
    numbers = itertools.count()

    async def work(end: float) -> None:
        while (before := perf_counter()) < end:
            number = next(numbers)
            _check(number, await caller.sum(number, 1))
            latencies.append(perf_counter() - before)

    async with AsyncClient(target) as caller:
        for number in range(WARM_UP):
            _check(number, await caller.sum(number, 1))
        begin = perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(work(begin + SECONDS))
        return Figures(latencies, perf_counter() - begin)


class Answer(msgspec.Struct):
    """What JSON-RPC answers."""

    id: int
    result: int


_answers: Final = msgspec.json.Decoder(Answer).decode_lines


def _request(number: int) -> bytes:
    return b'{"jsonrpc":"2.0","method":"sum","params":[%d,1],"id":%d}\n' % (number, number)


def json_sequential(target: str) -> Figures:
    """A plain socket that writes a line and reads a line."""
    with connect_blocking(parse_target(target), None) as sock:
        return _sequential(lambda number: _exchange(sock, [number]))


def json_pipelined(target: str) -> Figures:
    """A plain socket that writes `IN_FLIGHT` lines at once, then reads their answers."""
    latencies: list[float] = []
    with connect_blocking(parse_target(target), None) as sock:
        _exchange(sock, range(WARM_UP))
        begin = perf_counter()
        for number in itertools.count(step=IN_FLIGHT):
            latencies += _exchange(sock, range(number, number + IN_FLIGHT))
            if perf_counter() - begin >= SECONDS:
                break
        return Figures(latencies, perf_counter() - begin)


def _exchange(sock: socket.socket, numbers: range | list[int]) -> list[float]:
    """Send a request for each number and check the answers; give how long each took from the write on."""
    before = perf_counter()
    sock.sendall(b"".join(map(_request, numbers)))
    latencies: list[float] = []
    rest = b""
    while len(latencies) < len(numbers):
        data = sock.recv(RECEIVE_SIZE)
        if not data:
            raise Failure("error: the server closed the connection", REMOTE)
        lines, newline, rest = (rest + data).rpartition(b"\n")
        answers = _answers(lines + newline) if newline else []
        for answer in answers:
            _check(answer.id, answer.result)
        latencies += [perf_counter() - before] * len(answers)
    return latencies
