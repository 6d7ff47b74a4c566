"""The calls that wait for answers: held back, answered, refused, forgotten, expired. The server's side is by hand."""

import asyncio
from math import inf
from time import monotonic
from typing import Any

import msgspec
import pytest

from rpcfast import Limits, caller
from rpcfast.caller import Request
from rpcfast.codecs import get_codec
from rpcfast.connection import Connection
from rpcfast.errors import DeadlineExceeded, ErrorBody, InternalError, ParseError, ResourceExhausted, Unavailable
from rpcfast.service import native_binding
from rpcfast.transport import memory
from rpcfast.wire.events import Kind
from rpcfast.wire.native import Hello, NativeCore

decode = msgspec.msgpack.decode


class Hand(asyncio.Protocol):
    """The other side: keeps what arrives, sends what it is told."""

    def __init__(self) -> None:
        self.core = NativeCore(hello=Hello())
        self.transport: Any = None
        self.events: list[Any] = []
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.core.receive_data(data)
        self.events += [event for event in self.core.next_events() if event[0] != Kind.HELLO]

    def send(self, kind: int, call_id: int, payload: Any = b"") -> None:
        """Send one frame."""
        self.core.send((kind, call_id, payload))
        self.transport.write(b"".join(self.core.data_to_send()))

    def take(self) -> list[Any]:
        """What arrived since the last time, as (what, id)."""
        events, self.events = self.events, []
        return [event[:2] for event in events]


def connect(**limits: Any) -> tuple[Connection, Hand]:
    """A caller's connection and the hand at its other end."""
    given = Limits(**limits)
    binding = native_binding(get_codec("msgpack"), given)
    connection = Connection(NativeCore(client=True), binding, given, on_close=lambda _: None, only_calls=True)
    hand = Hand()
    memory.connect_pair(connection, hand)
    return connection, hand


def request(name: str = "f", **fields: Any) -> Request:
    """A call."""
    return Request(name.encode(), b"\x90", decode, **fields)


async def turn() -> None:
    """Let what was written arrive."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_answers_come_in_any_order() -> None:
    """Each result and error goes to its own call; ids grow."""
    connection, hand = connect()
    one, two, three = [connection.caller.call(request()) for _ in range(3)]
    await turn()
    assert hand.take() == [(b"f", 1), (b"f", 2), (b"f", 3)]
    hand.send(Kind.RESULT, 3, b"\x03")
    hand.send(Kind.ERROR, 2, msgspec.msgpack.encode(ErrorBody(-32603, "no")))
    hand.send(Kind.RESULT, 1, b"\x01")
    assert (await one, await three) == (1, 3)
    with pytest.raises(InternalError, match="no"):
        await two
    assert len(connection.caller) == 0


async def test_calls_of_one_turn_leave_in_one_write() -> None:
    """Nothing is written while calls are made; then all at once."""
    connection, hand = connect()
    await turn()
    writes: list[bytes] = []
    hand.data_received = writes.append  # type: ignore[method-assign]
    calls = [connection.caller.call(request()) for _ in range(10)]
    await turn()
    assert len(writes) == 1
    for call in calls:
        call.cancel()
    await turn()


async def test_what_is_beyond_the_limit_is_held_back() -> None:
    """Beyond max_in_flight calls wait here; each answer, and each cancellation, lets the oldest go."""
    connection, hand = connect(max_in_flight=2)
    calls = [connection.caller.call(request()) for _ in range(5)]
    await turn()
    assert hand.take() == [(b"f", 1), (b"f", 2)]
    assert len(connection.caller) == 5
    calls[2].cancel()
    hand.send(Kind.RESULT, 1, b"\x01")
    calls[1].cancel()
    await turn()
    assert sorted(hand.take(), key=str) == [(7, 2), (b"f", 3), (b"f", 4)]
    connection.caller.fail(Unavailable("over"))
    assert [call.cancelled() for call in calls] == [False, True, True, False, False]
    for call in calls[3:]:
        with pytest.raises(Unavailable):
            await call
    assert await calls[0] == 1


async def test_too_many_held_calls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue has an end, and says so at once."""
    monkeypatch.setattr(caller, "MAX_HELD", 1)
    connection, _ = connect(max_in_flight=1)
    calls = [connection.caller.call(request()) for _ in range(2)]
    with pytest.raises(ResourceExhausted):
        connection.caller.call(request())
    for call in calls:
        call.cancel()


async def test_a_held_call_that_cannot_be_sent_fails_alone() -> None:
    """A name that no frame takes fails its own call when its turn comes, and the next one goes."""
    connection, hand = connect(max_in_flight=1)
    one, bad, three = connection.caller.call(request()), connection.caller.call(request("x" * 300)), None
    three = connection.caller.call(request())
    await turn()
    hand.send(Kind.RESULT, 1, b"\x01")
    await turn()
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        await bad
    hand.send(Kind.RESULT, hand.take()[-1][1], b"\x03")
    assert (await one, await three) == (1, 3)


async def test_an_impossible_name_is_refused_at_once() -> None:
    """Where nothing is held back it raises where it is called, and leaves nothing waiting."""
    connection, _ = connect()
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        connection.caller.call(request(""))
    assert len(connection.caller) == 0


async def test_cancelling_tells_the_peer_once() -> None:
    """A cancelled future sends CANCEL; its late answer is dropped and counted."""
    connection, hand = connect()
    call = connection.caller.call(request())
    await turn()
    assert call.cancel()
    assert not call.cancel()
    await turn()
    assert hand.take() == [(b"f", 1), (Kind.CANCEL, 1)]
    hand.send(Kind.RESULT, 1, b"\x01")
    hand.send(Kind.ERROR, 1, b"\x80")
    await turn()
    assert connection.caller.dropped == 2


async def test_a_deadline_fails_the_call_and_tells_the_peer() -> None:
    """Both a call on its way and one held back expire; the peer hears of the first."""
    connection, hand = connect(max_in_flight=1)
    soon = monotonic() + 0.02
    calls = [connection.caller.call(request(deadline=soon)), connection.caller.call(request(deadline=soon))]
    for call in calls:
        with pytest.raises(DeadlineExceeded):
            await call
    await turn()
    assert (Kind.CANCEL, 1) in hand.take()
    assert connection.caller.next_expiry == inf


async def test_going_away_fails_what_the_peer_never_saw() -> None:
    """Calls beyond the last id, and those held back, fail; the others are still answered; none begins."""
    connection, hand = connect(max_in_flight=3)
    calls = [connection.caller.call(request()) for _ in range(4)]
    await turn()
    hand.send(Kind.GOING_AWAY, 1, ErrorBody.of(Unavailable("bye")))
    await turn()
    for call in calls[1:]:
        with pytest.raises(Unavailable, match="bye"):
            await call
    assert connection.leaving
    hand.send(Kind.RESULT, 1, b"\x07")
    assert await calls[0] == 7


async def test_a_lost_connection_fails_all_calls() -> None:
    """Unavailable, for those on their way and those held back."""
    connection, hand = connect(max_in_flight=1)
    calls = [connection.caller.call(request()) for _ in range(3)]
    hand.transport.close()
    for call in calls:
        with pytest.raises(Unavailable, match="lost"):
            await call
    calls[0].cancel()


@pytest.mark.parametrize("error", [msgspec.DecodeError("bad"), KeyError("bad"), RecursionError()])
async def test_an_answer_that_cannot_be_read_fails_its_call(error: Exception) -> None:
    """Whatever a decoder raises, the caller gets a ParseError, and the connection goes on."""

    def raises(_: bytes) -> Any:
        raise error

    connection, hand = connect()
    await turn()
    bad = connection.caller.call(Request(b"f", b"\x90", raises))
    good = connection.caller.call(request())
    hand.send(Kind.RESULT, 1, b"\x01")
    hand.send(Kind.RESULT, 2, b"\x02")
    with pytest.raises(ParseError):
        await bad
    assert await good == 2


async def test_an_error_that_cannot_be_read_fails_its_call() -> None:
    """A garbled ERROR body fails the call at once and is not answered."""
    connection, hand = connect()
    call = connection.caller.call(request())
    await turn()
    hand.take()
    hand.send(Kind.ERROR, 1, b"\xc1")
    with pytest.raises(ParseError):
        await call
    await turn()
    assert hand.take() == []


async def test_a_notification_waits_for_nothing() -> None:
    """It leaves with its metadata and timeout, under id 0, and nothing is kept."""
    connection, hand = connect()
    connection.caller.notify(request("n", timeout=1.5, metadata={"a": "b"}))
    await turn()
    assert hand.events == [(Kind.NOTIFICATION, 0, (b"n", b"\x90", 1.5, {"a": "b"}))]
    assert len(connection.caller) == 0


async def test_a_caller_whose_writes_are_paused_still_reads() -> None:
    """A peer that reads nothing for a while can still answer: two sides that wait for each other wait for ever."""
    connection, hand = connect(write_timeout=5.0)
    await turn()
    hand.transport.pause_reading()
    call = connection.caller.call(Request(b"f", b"\xc6\x00\x10\x00\x00" + bytes(2**20), decode))
    await turn()
    assert connection.transport.get_write_buffer_size() > 2**20
    hand.send(Kind.RESULT, 1, b"\x05")
    assert await call == 5
    hand.transport.resume_reading()
    await turn()
