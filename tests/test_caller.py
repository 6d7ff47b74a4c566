"""Calls of one connection: what completes, refuses, holds back, expires and cancels them; the peer is by hand."""

import asyncio
from math import inf
from time import monotonic
from typing import Any

import msgspec
import pytest

from rpcfast.caller import Request
from rpcfast.errors import DeadlineExceeded, ErrorBody, MethodNotFound, ParseError, ResourceExhausted, Unavailable
from rpcfast.wire.events import Kind
from rpcfast.wire.native import pack_frame
from tests.ends import calling_end, pack

decode = msgspec.msgpack.Decoder().decode


def request(name: str = "sum", **options: Any) -> Request:
    """A call with two parameters."""
    return Request(name.encode(), pack(2, 3), decode, **options)


def result(call_id: int, value: Any) -> bytes:
    """A result's frame."""
    return pack_frame(Kind.RESULT, call_id, msgspec.msgpack.encode(value))


def refusal(call_id: int, code: int, message: str) -> bytes:
    """An error's frame."""
    return pack_frame(Kind.ERROR, call_id, msgspec.msgpack.encode(ErrorBody(code, message)))


# ---- answers


async def test_results_complete_their_own_calls() -> None:
    """Calls get growing ids from 1, and answers find theirs in any order."""
    async with calling_end() as (connection, peer):
        first, second = connection.caller.call(request()), connection.caller.call(request("mul"))
        assert await peer.next() == (b"sum", 1, pack(2, 3))
        assert await peer.next() == (b"mul", 2, pack(2, 3))
        peer.send(result(2, "second"), result(1, "first"))
        assert await asyncio.gather(first, second) == ["first", "second"]
        assert len(connection.caller) == 0


async def test_calls_of_one_turn_leave_in_one_write() -> None:
    """What is called before the loop turns travels together."""
    async with calling_end() as (connection, peer):
        connection.caller.call(request())
        await peer.next()  # and with it the opening
        reads: list[bytes] = []
        receive = peer.core.receive_data
        peer.core.receive_data = lambda data: (reads.append(data), receive(data))
        for _ in range(5):
            connection.caller.call(request())
        for number in range(2, 7):
            assert (await peer.next())[1] == number
        assert len(reads) == 1


async def test_an_error_refuses_its_call() -> None:
    """It is raised as the class of its code, with its message."""
    async with calling_end() as (connection, peer):
        future = connection.caller.call(request())
        await peer.next()
        peer.send(refusal(1, MethodNotFound.code, "no sum"))
        with pytest.raises(MethodNotFound, match="no sum"):
            await future
        assert len(connection.caller) == 0


async def test_a_result_that_does_not_fit_fails_its_call_alone() -> None:
    """Bytes that the decoder refuses are ParseError; the next call is answered."""
    async with calling_end() as (connection, peer):
        broken, whole = connection.caller.call(request()), connection.caller.call(request())
        await peer.next()
        peer.send(pack_frame(Kind.RESULT, 1, b"\xc1"), result(2, 5))
        with pytest.raises(ParseError, match="cannot be read as what was asked for"):
            await broken
        assert await whole == 5


async def test_a_callers_own_future_is_used() -> None:
    """A plain future that is brought along gets the answer."""
    async with calling_end() as (connection, peer):
        mine = asyncio.get_running_loop().create_future()
        assert connection.caller.call(request(), mine) is mine
        await peer.next()
        peer.send(result(1, 5))
        assert await mine == 5


async def test_timeout_and_metadata_travel_with_their_call() -> None:
    """Both are told to the peer, in the frame of the call."""
    async with calling_end() as (connection, peer):
        connection.caller.call(request(timeout=2.5, metadata={"tenant": "7"})).cancel()
        assert await peer.next() == (Kind.CALL, 1, (b"sum", pack(2, 3), 2.5, {"tenant": "7"}))


async def test_a_notification_waits_for_nothing() -> None:
    """It is sent with id 0 and enters no table."""
    async with calling_end() as (connection, peer):
        connection.caller.notify(request())
        assert await peer.next() == (Kind.NOTIFICATION, 0, (b"sum", pack(2, 3), None, None))
        assert len(connection.caller) == 0


async def test_a_name_that_no_frame_takes_costs_nothing() -> None:
    """ValueError at once; no call waits, and the next one has the id that this one would have had."""
    async with calling_end() as (connection, peer):
        for options in ({}, {"timeout": 1.0}):
            with pytest.raises(ValueError, match="1 to 255 bytes"):
                connection.caller.call(request("x" * 256, **options))
        assert len(connection.caller) == 0
        connection.caller.call(request()).cancel()
        assert (await peer.next())[1] == 1


# ---- answers that nobody waits for


async def test_answers_without_a_caller_are_counted() -> None:
    """Results and errors for ids that are unknown, or answered already, are dropped."""
    async with calling_end() as (connection, peer):
        future = connection.caller.call(request())
        await peer.next()
        peer.send(result(9, 0), refusal(8, 1, "no"), result(1, 5), result(1, 6), refusal(1, 1, "no"))
        assert await future == 5
        assert await peer.quiet()
        assert connection.caller.dropped == 4
        assert not connection.lost


# ---- cancellation


async def test_cancelling_tells_the_peer() -> None:
    """CANCEL with the call's id, once; the answer that comes all the same is dropped."""
    async with calling_end() as (connection, peer):
        future = connection.caller.call(request())
        await peer.next()
        assert future.cancel()
        assert not future.cancel()
        assert await peer.next() == (Kind.CANCEL, 1, b"")
        peer.send(result(1, 5))
        assert await peer.quiet()
        assert (len(connection.caller), connection.caller.dropped) == (0, 1)


async def test_cancelling_an_answered_call_says_nothing() -> None:
    """A future that is done is not cancelled, and the peer hears nothing."""
    async with calling_end() as (connection, peer):
        future = connection.caller.call(request())
        await peer.next()
        peer.send(result(1, 5))
        assert await future == 5
        assert not future.cancel()
        assert await peer.quiet()


async def test_abandoning_a_plain_future_tells_the_peer() -> None:
    """A coroutine that brought its own future abandons the call by it."""
    async with calling_end() as (connection, peer):
        mine = asyncio.get_running_loop().create_future()
        connection.caller.call(request(), mine)
        await peer.next()
        mine.cancel()
        connection.caller.abandon(mine)
        assert await peer.next() == (Kind.CANCEL, 1, b"")
        connection.caller.abandon(mine)
        assert await peer.quiet()


# ---- calls held back


async def test_calls_beyond_the_limit_are_held_and_start_in_order() -> None:
    """Only max_in_flight calls are sent; each answer, result or error, lets the oldest of the others go."""
    async with calling_end(max_in_flight=1) as (connection, peer):
        names = ("a", "b", "c", "d")
        futures = [connection.caller.call(request(name)) for name in names]
        assert (len(connection.caller.waiting), len(connection.caller.held)) == (1, 3)
        for number, name in enumerate(names, 1):
            assert (await peer.next())[:2] == (name.encode(), number)
            assert await peer.quiet()
            peer.send(refusal(number, 4001, name) if name == "b" else result(number, name))
        answers = await asyncio.gather(*futures, return_exceptions=True)
        assert [str(answer) for answer in answers] == list(names)


async def test_a_cancelled_call_makes_room() -> None:
    """A call that is given up lets a held one start, after its CANCEL."""
    async with calling_end(max_in_flight=1) as (connection, peer):
        first = connection.caller.call(request("a"))
        connection.caller.call(request("b"))
        await peer.next()
        first.cancel()
        assert await peer.next() == (Kind.CANCEL, 1, b"")
        assert (await peer.next())[:2] == (b"b", 2)


async def test_a_held_call_that_is_cancelled_is_never_sent() -> None:
    """The peer hears neither of it nor of its end."""
    async with calling_end(max_in_flight=1) as (connection, peer):
        connection.caller.call(request("a"))
        held = connection.caller.call(request("b"))
        await peer.next()
        held.cancel()
        assert len(connection.caller.held) == 0
        peer.send(result(1, 1))
        assert await peer.quiet()


async def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than MAX_HELD is ResourceExhausted at once, and enters nothing."""
    monkeypatch.setattr("rpcfast.caller.MAX_HELD", 2)
    async with calling_end(max_in_flight=1) as (connection, _):
        for _ in range(3):
            connection.caller.call(request())
        with pytest.raises(ResourceExhausted, match="2 calls wait for this connection already"):
            connection.caller.call(request())
        assert len(connection.caller) == 3


async def test_a_held_call_that_no_frame_takes_fails_alone() -> None:
    """What is found out when it starts is raised by its own future; the one after it goes."""
    async with calling_end(max_in_flight=1) as (connection, peer):
        connection.caller.call(request("a"))
        wrong, right = connection.caller.call(request("x" * 256)), connection.caller.call(request("c"))
        await peer.next()
        peer.send(result(1, 1))
        assert (await peer.next())[:2] == (b"c", 2)
        with pytest.raises(ValueError, match="255 bytes"):
            await wrong
        peer.send(result(2, 2))
        assert await right == 2


async def test_a_held_call_tells_what_is_left_of_its_timeout() -> None:
    """The time that it was held back is taken off the timeout that the peer is told."""
    async with calling_end(max_in_flight=1) as (connection, peer):
        connection.caller.call(request("a"))
        connection.caller.call(request("b", timeout=60.0, deadline=monotonic() + 20.0))
        await peer.next()
        peer.send(result(1, 1))
        kind, call_id, (name, _, timeout, _) = await peer.next()
        assert (kind, call_id, name) == (Kind.CALL, 2, b"b")
        assert 10.0 < timeout <= 20.0


# ---- deadlines


async def test_a_deadline_ends_a_call_on_both_sides() -> None:
    """The future is DeadlineExceeded, and the peer gets CANCEL."""
    async with calling_end() as (connection, peer):
        future = connection.caller.call(request(deadline=monotonic() + 0.01))
        with pytest.raises(DeadlineExceeded, match="no answer came before the deadline"):
            await future
        assert (await peer.next())[1] == 1
        assert await peer.next() == (Kind.CANCEL, 1, b"")
        assert connection.caller.next_expiry == inf


async def test_a_deadline_ends_a_held_call_in_silence() -> None:
    """It fails where it is held, and is never sent."""
    async with calling_end(max_in_flight=1) as (connection, peer):
        first = connection.caller.call(request("a"))
        held = connection.caller.call(request("b", deadline=monotonic() + 0.01))
        with pytest.raises(DeadlineExceeded):
            await held
        await peer.next()
        peer.send(result(1, 1))
        assert await first == 1
        assert await peer.quiet()


async def test_only_what_is_due_expires() -> None:
    """Calls with a later deadline, or none, go on; the next expiry is theirs."""
    async with calling_end() as (connection, _):
        now = monotonic()
        due, later, never = (connection.caller.call(request(deadline=at)) for at in (now + 5, now + 50, inf))
        connection.caller.expire(now + 6)
        assert isinstance(due.exception(), DeadlineExceeded)
        assert not later.done()
        assert not never.done()
        assert connection.caller.next_expiry == now + 50


async def test_an_expired_call_makes_room() -> None:
    """A held call starts when the one in front of it expires."""
    async with calling_end(max_in_flight=1) as (connection, peer):
        late = connection.caller.call(request("a", deadline=monotonic() + 0.01))
        connection.caller.call(request("b"))
        assert (await peer.next())[0] == b"a"
        with pytest.raises(DeadlineExceeded):
            await late
        assert await peer.next() == (Kind.CANCEL, 1, b"")
        assert (await peer.next())[0] == b"b"


# ---- the end


async def test_calls_that_the_peer_never_saw_fail() -> None:
    """refuse_after fails those beyond the last id and those held, each with an exception of its own; others go on."""
    async with calling_end(max_in_flight=3) as (connection, peer):
        seen, unseen, other, held = (connection.caller.call(request()) for _ in range(4))
        await peer.next()
        connection.leaving = True
        connection.caller.refuse_after(1, Unavailable("the server is going away"))
        errors = [future.exception() for future in (unseen, other, held)]
        assert [str(error) for error in errors] == ["the server is going away"] * 3
        assert len(set(map(id, errors))) == 3
        for number in (2, 3):
            assert (await peer.next())[1] == number
        peer.send(result(1, 5))
        assert await seen == 5


async def test_a_connection_that_is_leaving_says_why() -> None:
    """A new call raises the first reason that was given, a copy for each caller, and a general one without any."""
    async with calling_end() as (connection, _):
        connection.leaving = True
        with pytest.raises(Unavailable, match="takes no new calls"):
            connection.caller.call(request())
        connection.caller.refuse_after(0, Unavailable("first"))
        connection.caller.refuse_after(0, Unavailable("second"))
        errors = []
        for _ in range(2):
            with pytest.raises(Unavailable, match="first") as caught:
                connection.caller.call(request())
            errors.append(caught.value)
        assert errors[0] is not errors[1]


async def test_a_lost_connection_fails_every_call() -> None:
    """Those that wait and those held are Unavailable."""
    async with calling_end(max_in_flight=1) as (connection, peer):
        futures = [connection.caller.call(request()) for _ in range(3)]
        peer.transport.abort()
        for answer in await asyncio.gather(*futures, return_exceptions=True):
            assert isinstance(answer, Unavailable)
        assert len(connection.caller) == 0


async def test_closing_cancels_what_the_peer_runs() -> None:
    """close() sends CANCEL for each call that waits, none for those held, and fails all with the reason."""
    async with calling_end(max_in_flight=2) as (connection, peer):
        futures = [connection.caller.call(request()) for _ in range(3)]
        connection.caller.close(Unavailable("the client was closed"))
        connection.flush()
        for future in futures:
            assert str(future.exception()) == "the client was closed"
        assert [(await peer.next())[:2] for _ in range(4)] == [
            (b"sum", 1),
            (b"sum", 2),
            (Kind.CANCEL, 1),
            (Kind.CANCEL, 2),
        ]
        assert await peer.quiet()
