"""One connection: the order of things, what a slow peer does to it, deadlines, cancellation, the end."""

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from rpcfast import Limits, Server, current_context
from rpcfast.connection import Connection, address_of
from rpcfast.errors import DeadlineExceeded, ErrorBody
from rpcfast.serving import Serving
from rpcfast.wire.events import Kind
from rpcfast.wire.native import OPENING, NativeCore, pack_call, pack_frame
from tests.services import connections, until


class Peer(asyncio.Protocol):
    """A client by hand, in memory: notes what arrives and how often, reads or does not."""

    def __init__(self) -> None:
        self.core = NativeCore(client=True)
        self.core.data_to_send()
        self.transport: Any = None
        self.reads = 0
        self.events: list[Any] = []
        self.ended = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(OPENING)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        self.core.receive_data(data)
        self.events += [event for event in self.core.next_events() if event[0] != Kind.HELLO]

    def eof_received(self) -> None:
        self.ended = True

    def send(self, *frames: bytes) -> None:
        """Write frames, as one read of the server."""
        self.transport.write(b"".join(frames))

    def results(self) -> list[Any]:
        """(id, value) of each result; (id, code) of each error."""
        found = []
        for kind, call_id, payload in self.events:
            if kind == Kind.RESULT:
                found.append((call_id, msgspec.msgpack.decode(payload)))
            elif kind == Kind.ERROR:
                found.append((call_id, msgspec.msgpack.decode(payload, type=ErrorBody).code))
        return found


def make_server(state: dict[str, Any], **limits: Any) -> Server:
    """What these tests call."""
    server = Server(limits=Limits(**limits))
    state.update(go=asyncio.Event(), log=[])

    @server
    def note(value: Any) -> Any:
        state["log"].append(value)
        return value

    @server
    def bulk(size: int) -> bytes:
        state["log"].append("bulk")
        return bytes(size)

    @server
    def tenant() -> str:
        return current_context().metadata.get("tenant", "nobody")

    @server
    async def wait() -> str:
        try:
            await state["go"].wait()
        finally:
            state["log"].append("cleaned")
        return "done"

    @server
    async def bulk_later(size: int) -> bytes:
        await state["go"].wait()
        return bytes(size)

    return server


async def connect(running: Serving) -> tuple[Peer, Connection]:
    """A peer, and the server's side of it."""
    peer = Peer()
    running.accept(peer)
    await until(lambda: connections(running))
    return peer, connections(running)[-1]


def call(call_id: int, name: str, *params: Any, **options: Any) -> bytes:
    """One call."""
    return pack_call(call_id, name.encode(), msgspec.msgpack.encode(params), **options)


async def test_all_answers_of_one_read_leave_in_one_write() -> None:
    """A hundred calls that arrive together are answered together, in order."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, _ = await connect(running)
        await until(lambda: peer.reads == 1)  # the hello
        peer.send(*(call(n, "note", n) for n in range(1, 101)))
        await until(lambda: len(peer.events) == 100)
        assert peer.reads == 2
        assert peer.results() == [(n, n) for n in range(1, 101)]


async def test_calls_that_end_in_one_turn_leave_in_one_write() -> None:
    """Fifty coroutines that are woken together are answered in one write."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, connection = await connect(running)
        peer.send(*(call(n, "wait") for n in range(1, 51)))
        await until(lambda: len(connection.running) == 50)
        reads = peer.reads
        state["go"].set()
        await until(lambda: len(peer.events) == 50)
        assert peer.reads == reads + 1


async def test_many_small_answers_are_written_in_parts() -> None:
    """Of 3,000 calls in one read, no more than 1,024 are run before their answers leave."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, _ = await connect(running)
        await until(lambda: peer.reads == 1)
        peer.send(*(call(n, "note", n) for n in range(1, 3_001)))
        await until(lambda: len(peer.events) == 3_000)
        assert peer.reads == 1 + 3
        assert [value for _, value in peer.results()] == list(range(1, 3_001))


async def test_calls_behind_a_slow_reader_wait() -> None:
    """When answers are not read, the calls that arrived are not run; when they are, all are, in order, none twice."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, connection = await connect(running)
        peer.transport.pause_reading()
        peer.send(*(call(n, "bulk", 50_000) for n in range(1, 21)), call(21, "note", 1))
        await until(lambda: connection._paused)
        ran = len(state["log"])
        assert ran <= 4
        peer.send(call(22, "note", 2))
        await asyncio.sleep(0.01)
        assert len(state["log"]) == ran
        assert connection.busy
        peer.transport.resume_reading()
        await until(lambda: len(peer.events) == 22)
        assert [call_id for call_id, _ in peer.results()] == list(range(1, 23))
        assert state["log"] == ["bulk"] * 20 + [1, 2]


async def test_calls_that_waited_have_their_own_context() -> None:
    """A call that ran late, in the turn of somebody else's answer, does not see that other call's metadata."""
    state: dict[str, Any] = {}
    async with make_server(state, write_high_water=1000).serving() as running:
        peer, connection = await connect(running)
        peer.send(call(1, "bulk_later", 400_000, metadata={"tenant": "7"}))
        await until(lambda: len(connection.running))
        peer.transport.pause_reading()
        state["go"].set()
        await until(lambda: connection._paused)
        connection.data_received(call(2, "tenant") + call(3, "tenant", metadata={"tenant": "8"}))
        assert len(connection._backlog) == 2
        peer.transport.resume_reading()
        await until(lambda: len(peer.events) == 3)
        assert peer.results()[1:] == [(2, "nobody"), (3, "8")]


async def test_a_peer_that_takes_nothing_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    """After write_timeout, with a line in the log that names it; its calls are cancelled."""
    state: dict[str, Any] = {}
    async with make_server(state, write_timeout=0.05).serving() as running:
        peer, connection = await connect(running)
        peer.send(call(1, "wait"))
        peer.transport.pause_reading()
        peer.send(call(2, "bulk", 200_000))
        await until(lambda: connection.lost)
        assert "does not read its answers" in caplog.text
        await until(lambda: state["log"] == ["bulk", "cleaned"])


async def test_a_deadline_cancels_and_is_answered() -> None:
    """The handler is cancelled at the deadline, the others of the connection run on, nothing is kept of it."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, connection = await connect(running)
        peer.send(call(1, "wait", timeout=0.02), call(2, "wait", timeout=30.0), call(3, "wait"))
        await until(lambda: len(peer.events) == 1)
        assert peer.results() == [(1, DeadlineExceeded.code)]
        assert state["log"] == ["cleaned"]
        await asyncio.sleep(0)
        assert len(connection.running) == 2
        assert connection._reasons == {}
        state["go"].set()
        await until(lambda: len(peer.events) == 3)


async def test_a_cancelled_call_is_not_answered() -> None:
    """CANCEL ends it silently; a PING behind it shows that nothing else came."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, connection = await connect(running)
        peer.send(call(1, "wait"))
        await until(lambda: len(connection.running))
        peer.send(pack_frame(Kind.CANCEL, 1))
        await until(lambda: not len(connection.running))
        peer.send(pack_frame(Kind.PING, 5, b"x"))
        await until(lambda: peer.events)
        assert peer.events == [(Kind.PONG, 5, b"x")]
        assert state["log"] == ["cleaned"]


async def test_a_call_cancelled_in_the_read_that_brought_it_is_gone() -> None:
    """CALL and CANCEL in one read leave nothing in the table, on every Python."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, connection = await connect(running)
        peer.send(*(call(n, "wait") + pack_frame(Kind.CANCEL, n) for n in range(1, 11)))
        await until(lambda: connection.core.last_id == 10)
        await until(lambda: not len(connection.running))
        await until(lambda: not connection._reasons)
        assert state["log"] == ["cleaned"] * 10


async def test_after_going_away_calls_are_refused_and_running_ones_answered() -> None:
    """GOING_AWAY names the last call that is run; what comes later is Unavailable; it is said once."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, connection = await connect(running)
        peer.send(call(1, "wait"))
        await until(lambda: len(connection.running))
        connection.go_away()
        connection.go_away()
        peer.send(call(2, "note", 1), call(3, "nothing"), call(4, "note", 1, timeout=1.0))
        await until(lambda: len(peer.events) == 4)
        assert peer.events[0] == (Kind.GOING_AWAY, 1, None)
        assert peer.results() == [(2, -32003), (3, -32003), (4, -32003)]
        state["go"].set()
        await until(lambda: len(peer.events) == 5)
        assert peer.results()[-1] == (1, "done")
        assert state["log"] == ["cleaned"]


async def test_a_peer_that_stopped_sending_is_answered_then_left() -> None:
    """After the end of its sending the call in flight is answered, then the connection is closed."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, connection = await connect(running)
        peer.send(call(1, "wait"))
        peer.transport.write_eof()
        await until(lambda: connection._eof)
        assert not connection.lost
        state["go"].set()
        await until(lambda: connection.lost)
        await until(lambda: peer.ended)
        assert peer.results() == [(1, "done")]


async def test_a_close_in_the_middle_runs_nothing_after_it() -> None:
    """Of one read with a breach in it, what stands before is answered and what follows is not run."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, connection = await connect(running)
        peer.send(call(1, "note", 1), pack_frame(0), call(2, "note", 2))
        await until(lambda: connection.lost)
        assert state["log"] == [1]
        assert peer.results() == [(1, 1)]


async def test_an_exception_is_logged_with_its_name_and_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The log has what the caller must not see."""
    server = Server()

    @server(name="shop.buy")
    def buy() -> None:
        raise ZeroDivisionError("no money")

    async with server.serving() as running:
        peer, _ = await connect(running)
        peer.send(call(1, "shop.buy"))
        await until(lambda: peer.events)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "shop.buy failed"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_a_connection_says_what_it_is() -> None:
    """Its repr has state, peer and counts; its peer's address is written as people write it."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        _, connection = await connect(running)
        assert repr(connection) == "<Connection open native memory, 0 running, 0 waited for>"
        connection.abort()
        await until(lambda: connection.lost)
        connection.abort()
        connection.close()
        connection.go_away()
        assert repr(connection).startswith("<Connection lost")


@pytest.mark.parametrize(
    ("name", "text"),
    [(("127.0.0.1", 80), "127.0.0.1:80"), (("::1", 80, 0, 0), "[::1]:80"), ("/run/s", "/run/s"), (None, ""), (b"", "")],
)
def test_addresses_are_written_as_people_write_them(name: Any, text: str) -> None:
    """IPv4, IPv6, a path, and nothing."""

    class Transport:
        def get_extra_info(self, _: str) -> Any:
            return name

    assert address_of(Transport()) == text
