"""The engines themselves: what they count, and that they notice what is wrong. Skipped by `--benchmark-only`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from benchmarks import load_c, load_python
from benchmarks.load_python import Run
from benchmarks.wire import Wire

REQUEST = b"call" + bytes(8) + b"\r\n"
WIRE = Wire(REQUEST, REQUEST, 4, 4)
Serve = Callable[[socket.socket, bytes], None]

engines = pytest.mark.parametrize(
    "engine",
    [
        pytest.param(load_c, marks=pytest.mark.skipif(not load_c.available(), reason="no C compiler")),
        load_python,
    ],
    ids=["c", "python"],
)


@contextmanager
def server(serve: Serve) -> Iterator[socket.socket]:
    """Yield a client's socket whose other end is served by a thread, one read at a time."""
    ours, theirs = socket.socketpair()
    ours.settimeout(0)

    def loop() -> None:
        with theirs:
            while theirs.fileno() != -1 and (data := theirs.recv(65536)):
                serve(theirs, data)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join()


@engines
def test_counts_every_answer(engine: ModuleType) -> None:
    """As many calls are counted as were made, none wrong, and the latencies are those of calls."""
    seen = 0

    def echo(sock: socket.socket, data: bytes) -> None:
        nonlocal seen
        seen += len(data)
        sock.sendall(data)

    ids = [1]
    with server(echo) as sock:
        tally = engine.run([sock], ids, WIRE, 4, 0.05)
    assert tally.calls == seen // len(REQUEST) == ids[0] - 1
    assert tally.wrong == 0
    assert 0 < tally.p50 <= tally.p99 < tally.nanoseconds


@engines
def test_ids_grow_from_run_to_run(engine: ModuleType) -> None:
    """Ids count up by one without a gap, and go on after a warm-up."""
    received: list[bytes] = []

    def echo(sock: socket.socket, data: bytes) -> None:
        received.append(data)
        sock.sendall(data)

    ids = [1]
    with server(echo) as sock:
        engine.run([sock], ids, WIRE, 3, 0.02)
        engine.run([sock], ids, WIRE, 3, 0.02)
    sent = b"".join(received)
    found = [int.from_bytes(sent[at + 4 : at + 12], "big") for at in range(0, len(sent), len(REQUEST))]
    assert found == list(range(1, ids[0]))


@engines
def test_a_wrong_answer_is_counted(engine: ModuleType) -> None:
    """One byte that differs in one answer is one wrong answer."""
    answers = iter([True, True, False])

    def corrupt(sock: socket.socket, data: bytes) -> None:
        sock.sendall(data if next(answers, True) else data.replace(b"call", b"cell"))

    with server(corrupt) as sock:
        assert engine.run([sock], [1], WIRE, 1, 0.02).wrong == 1


@engines
def test_what_varies_is_not_compared(engine: ModuleType) -> None:
    """The part of an answer that is said to vary may be anything."""
    wire = Wire(REQUEST, REQUEST, 4, 4, varies=(slice(0, 4),))
    with server(lambda sock, data: sock.sendall(data.replace(b"call", b"cell"))) as sock:
        assert engine.run([sock], [1], wire, 1, 0.02).wrong == 0


@engines
def test_answers_cut_anywhere_are_put_together(engine: ModuleType) -> None:
    """An answer that comes byte by byte is one answer."""

    def dribble(sock: socket.socket, data: bytes) -> None:
        for byte in data:
            sock.sendall(bytes([byte]))

    ids = [1]
    with server(dribble) as sock:
        tally = engine.run([sock], ids, WIRE, 2, 0.02)
    assert (tally.calls, tally.wrong) == (ids[0] - 1, 0)


@engines
def test_a_lost_connection_is_not_silent(engine: ModuleType) -> None:
    """Calls that were in flight when the server closed count as wrong."""
    with server(lambda sock, _: sock.close()) as sock:
        tally = engine.run([sock], [1], WIRE, 5, 0.02)
    assert (tally.calls, tally.wrong) == (0, 5)


def test_prepared_ids_go_on_past_the_end_of_a_run() -> None:
    """The id after the last of a prepared run is the first of the next one."""
    calls = Run(REQUEST, 4)
    taken = bytes(calls.take(65535, 2)) + bytes(calls.take(65536, 1)) + bytes(calls.take(1 << 40, 1))
    assert [int.from_bytes(taken[at + 4 : at + 12], "big") for at in (0, 14, 28)] == [65535, 65536, 1 << 40]
