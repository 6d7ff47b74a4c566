"""Both clients against raw sockets that misbehave: each fault is a documented error in time; the next call works."""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rpcfast import (
    AsyncClient,
    Client,
    DeadlineExceeded,
    Limits,
    ParseError,
    ResourceExhausted,
    RPCError,
    Unavailable,
)
from rpcfast.server import new_event_loop
from tests import peers

Call = Callable[..., Any]


@pytest.fixture(params=["blocking", "asyncio", "uvloop"])
def make_client(request: pytest.FixtureRequest) -> Any:
    """Make a client of each kind with one face: `client.call(...)` that blocks, `client.close()`."""
    made: list[Any] = []

    class Async:
        def __init__(self, target: str, **options: Any) -> None:
            self._runner = asyncio.Runner(loop_factory=new_event_loop(request.param))
            self._client = AsyncClient(target, **options)

        def call(self, *args: Any, **options: Any) -> Any:
            async def one() -> Any:
                return await self._client.call(*args, **options)

            return self._runner.run(one())

        def close(self) -> None:
            self._runner.run(self._client.close())
            self._runner.close()

    def make(target: str, **options: Any) -> Any:
        made.append(Client(target, **options) if request.param == "blocking" else Async(target, **options))
        return made[-1]

    make.made = made  # type: ignore[attr-defined]
    yield make
    for client in made:
        client.close()


def answering(sock: socket.socket, fault: Callable[[int], bytes] | None = None) -> None:
    """Greet, then answer each call with 5, or with what `fault(id)` gives, until the client closes."""
    peers.greet(sock)
    while True:
        kind, call_id, _ = peers.read_frame(sock)
        if kind == 1:
            sock.sendall(fault(call_id) if fault else peers.frame(peers.RESULT, call_id, b"\x05"))


GARBAGE = {
    "http": (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", True, ParseError, "not rpcfast's native protocol"),
    "closes": (lambda _: b"", True, Unavailable, "lost"),
    "unknown kind": (lambda n: peers.frame(99, n), False, RPCError, "kind 99"),
    "huge length": (lambda n: struct.pack(">IQI", 2**32 - 1, n, 3 << 24), False, ResourceExhausted, "beyond the limit"),
    "bad value": (lambda n: peers.frame(peers.RESULT, n, b"\xc1"), False, ParseError, "cannot be read"),
    "bad error": (lambda n: peers.frame(peers.ERROR, n, b"\xc1"), False, ParseError, "cannot be read"),
    "bad going away": (lambda _: peers.frame(peers.GOING_AWAY, 0, b"\xc1"), False, ParseError, "cannot be read"),
}


@pytest.mark.parametrize("fault", GARBAGE)
def test_garbage_is_a_documented_error(make_client: Call, fault: str) -> None:
    """Whatever a peer answers, the call fails at once with an RPCError that says what came; the next call may work."""
    answer, instead_of_opening, error, text = GARBAGE[fault]
    faulty = iter([True])

    def behave(sock: socket.socket) -> None:
        if instead_of_opening and next(faulty, False):
            peers.receive(sock, 5)
            while peers.read_frame(sock)[0] != 1:
                pass
            sock.sendall(answer(0))
            return
        answering(sock, lambda n: answer(n) if next(faulty, False) else peers.frame(peers.RESULT, n, b"\x05"))

    with peers.Peer(behave) as peer:
        client = make_client(peer.target, timeout=5)
        began = time.monotonic()
        with pytest.raises(error, match=text):
            client.call("sum", 2, 3)
        assert time.monotonic() - began < 2
        assert client.call("sum", 2, 3) == 5
        client.close()
        make_client.made.clear()


def test_answers_to_nobody_are_dropped(make_client: Call) -> None:
    """Results and errors with unknown ids are ignored, and do not reach a call."""

    def fault(call_id: int) -> bytes:
        strange = b"".join(peers.frame(peers.RESULT, n, b"\x07") for n in (0, call_id + 1, 2**64 - 1))
        return strange + peers.frame(peers.ERROR, 77, b"\xc1") + peers.frame(peers.RESULT, call_id, b"\x05") * 2

    with peers.Peer(lambda sock: answering(sock, fault)) as peer:
        client = make_client(peer.target, timeout=5)
        assert [client.call("sum", 2, 3) for _ in range(5)] == [5] * 5
        assert peer.accepted == 1
        client.close()
        make_client.made.clear()


def test_a_peer_that_never_answers(make_client: Call) -> None:
    """The call fails by its deadline, the peer is told, and the connection stays."""
    cancelled = threading.Event()

    def behave(sock: socket.socket) -> None:
        peers.greet(sock)
        while True:
            if peers.read_frame(sock)[0] == peers.CANCEL:
                cancelled.set()

    with peers.Peer(behave) as peer:
        client = make_client(peer.target)
        for timeout in (0.1, 0.2):
            began = time.monotonic()
            with pytest.raises(DeadlineExceeded):
                client.call("sum", 2, 3, timeout=timeout)
            assert timeout * 0.9 <= time.monotonic() - began < timeout + 0.2
        assert cancelled.wait(5)
        assert peer.accepted == 1
        client.close()
        make_client.made.clear()


def test_a_peer_that_drips_holds_no_deadline_off(make_client: Call) -> None:
    """Bytes that keep coming without an answer do not keep a call beyond its deadline."""

    def behave(sock: socket.socket) -> None:
        peers.greet(sock)
        while True:
            sock.sendall(peers.frame(peers.RESULT, 999, b"\x05"))
            time.sleep(0.0005)

    with peers.Peer(behave) as peer:
        client = make_client(peer.target)
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            client.call("sum", 2, 3, timeout=0.2)
        assert time.monotonic() - began < 0.5
        client.close()
        make_client.made.clear()


def test_an_answer_in_single_bytes(make_client: Call) -> None:
    """An answer may come cut anywhere."""

    def behave(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in peers.OPENING + peers.HELLO_FRAME:
            sock.sendall(bytes([byte]))
        peers.receive(sock, 5)
        while True:
            kind, call_id, _ = peers.read_frame(sock)
            if kind == 1:
                for byte in peers.frame(peers.RESULT, call_id, b"\x05"):
                    sock.sendall(bytes([byte]))

    with peers.Peer(behave) as peer:
        client = make_client(peer.target, timeout=5)
        assert [client.call("sum", 2, 3) for _ in range(3)] == [5] * 3
        client.close()
        make_client.made.clear()


def test_pings_are_answered(make_client: Call) -> None:
    """A ping that comes while a call waits is answered with its own payload and id."""
    pongs: list[tuple[int, int, bytes]] = []

    def behave(sock: socket.socket) -> None:
        peers.greet(sock)
        while True:
            kind, call_id, _ = peers.read_frame(sock)
            if kind == 1:
                sock.sendall(peers.frame(peers.PING, 4, b"hi"))
                pongs.append(peers.read_frame(sock))
                sock.sendall(peers.frame(peers.RESULT, call_id, b"\x05"))

    with peers.Peer(behave) as peer:
        client = make_client(peer.target, timeout=5)
        assert client.call("sum", 2, 3) == 5
        client.close()
        make_client.made.clear()
    assert pongs == [(peers.PONG, 4, b"hi")]


def test_going_away_sends_new_calls_elsewhere(make_client: Call) -> None:
    """After GOING_AWAY a call that runs is still answered, and the next ones take a new connection."""

    def behave(sock: socket.socket) -> None:
        peers.greet(sock)
        while True:
            kind, call_id, _ = peers.read_frame(sock)
            if kind == 1:
                sock.sendall(peers.frame(peers.GOING_AWAY, call_id) + peers.frame(peers.RESULT, call_id, b"\x05"))

    with peers.Peer(behave) as peer:
        client = make_client(peer.target, timeout=5)
        for expected in (1, 2, 3):
            assert client.call("sum", 2, 3) == 5
            assert peer.accepted == expected
        client.close()
        make_client.made.clear()


def test_going_away_refuses_what_was_not_seen(make_client: Call) -> None:
    """A call whose id is beyond GOING_AWAY's fails with its reason: it was not run."""

    def behave(sock: socket.socket) -> None:
        peers.greet(sock)
        while peers.read_frame(sock)[0] != 1:
            pass
        sock.sendall(peers.frame(peers.GOING_AWAY, 0))
        peers.read_until_closed(sock)

    with peers.Peer(behave) as peer:
        client = make_client(peer.target, timeout=5)
        with pytest.raises(Unavailable, match="going away"):
            client.call("sum", 2, 3)
        client.close()
        make_client.made.clear()


def test_a_peer_that_does_not_read(make_client: Call) -> None:
    """A call that cannot be sent whole fails by its deadline."""
    done = threading.Event()

    def behave(sock: socket.socket) -> None:
        peers.greet(sock)
        done.wait(10)

    with peers.Peer(behave) as peer:
        client = make_client(peer.target, limits=Limits(max_message_size=64 * 1024 * 1024))
        began = time.monotonic()
        with pytest.raises((DeadlineExceeded, Unavailable)):
            client.call("size", bytes(15 * 1024 * 1024), timeout=0.3)
        assert time.monotonic() - began < 2
        done.set()
        client.close()
        make_client.made.clear()


def test_a_peer_that_reads_when_it_is_read() -> None:
    """A server that writes before it reads and a thread that waits for room to send do not deadlock: it reads."""

    def behave(sock: socket.socket) -> None:
        peers.greet(sock)
        peers.receive(sock, 1000)
        for _ in range(16):  # far more than the buffers of both sides take
            sock.sendall(peers.frame(peers.RESULT, 999, bytes(1024 * 1024)))
        peers.receive(sock, 16 * 1024 * 1024 - 1000)
        sock.sendall(peers.frame(peers.RESULT, 1, b"\x05"))
        peers.read_until_closed(sock)

    with peers.Peer(behave) as peer, Client(peer.target, timeout=10) as client:
        assert client.size(bytes(16 * 1024 * 1024 - 16 - 4 - 6)) == 5


def test_pings_without_end_are_bounded() -> None:
    """A peer that asks and never reads is given up; its pongs do not pile up in memory."""

    def behave(sock: socket.socket) -> None:
        peers.greet(sock)
        while True:
            sock.sendall(peers.frame(peers.PING, 1, bytes(32 * 1024)) * 8)

    with (
        peers.Peer(behave) as peer,
        Client(peer.target, timeout=15) as client,
        pytest.raises(Unavailable, match="does not read"),
    ):
        client.sum(2, 3)


def test_a_peer_that_closes_each_connection(make_client: Call) -> None:
    """A peer that accepts and hangs up is Unavailable, not an endless dialling."""
    with peers.Peer(lambda sock: None) as peer:
        client = make_client(peer.target, timeout=5)
        for _ in range(3):
            with pytest.raises(Unavailable):
                client.call("sum", 2, 3)
        assert peer.accepted <= 9
        client.close()
        make_client.made.clear()
