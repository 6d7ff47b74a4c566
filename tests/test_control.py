"""What arrives beside plain calls, each kind of event on a real connection; the sinks of notifications and batches."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from rpcfast import Context, Limits, Server
from rpcfast.call import current_context
from rpcfast.caller import Request
from rpcfast.control import CONTROL
from rpcfast.errors import DeadlineExceeded, ErrorBody, MethodNotFound, ParseError, ResourceExhausted, Unavailable
from rpcfast.wire.events import Kind
from rpcfast.wire.native import Hello, pack_call, pack_frame
from tests.ends import calling_end, pack, serving_end
from tests.services import connections, open_memory, until


class Service:
    """A server with what these tests call."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.notes: list[Any] = []
        self.server = Server(limits=limits)
        for function in (self.add, self.text, self.tenant, self.note, self.left, self.wait, self.let_go):
            self.server(function)

    def add(self, a: int, b: int) -> int:
        return a + b

    def text(self, size: int) -> str:
        return "x" * size

    def tenant(self, ctx: Context) -> str:
        return f"{ctx.metadata.get('tenant')} {current_context().metadata.get('tenant')}"

    def note(self, ctx: Context) -> None:
        self.notes.append((dict(ctx.metadata), ctx.deadline))

    def left(self, ctx: Context) -> float | None:
        return ctx.deadline.remaining() if ctx.deadline else None

    async def wait(self, value: int) -> int:
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return value

    def let_go(self) -> None:
        self.go.set()


@asynccontextmanager
async def native(**limits: Any) -> Any:
    """A service, its connection, and the client by hand."""
    service = Service()
    async with serving_end(service.server, **limits) as (connection, peer):
        yield service, connection, peer
        service.go.set()


@asynccontextmanager
async def stream(limits: Limits | None = None) -> Any:
    """A service, and what sends it a JSON-RPC message and reads the next line."""
    service = Service(limits)
    async with service.server.serving() as serving:
        reader, writer = await open_memory(serving)

        async def say(message: Any) -> None:
            writer.write(json.dumps(message).encode() + b"\n")

        async def hear() -> Any:
            return json.loads(await asyncio.wait_for(reader.readline(), 5))

        yield service, serving, say, hear
        service.go.set()
        writer.close()


def call(name: str, *params: Any, **more: Any) -> dict[str, Any]:
    """A JSON-RPC call, without an id unless it is given."""
    return {"jsonrpc": "2.0", "method": name, "params": params, **more}


# ---- CALL


async def test_metadata_reaches_its_call_alone() -> None:
    """The handler and what it calls see it; the next call of the same read sees none."""
    async with native() as (_, _, peer):
        peer.send(pack_call(1, b"tenant", b"\x90", metadata={"tenant": "7"}), pack_call(2, b"tenant", b"\x90"))
        assert [await peer.next(), await peer.next()] == [(Kind.RESULT, 1, "7 7"), (Kind.RESULT, 2, "None None")]


async def test_a_timeout_reaches_its_call_alone() -> None:
    """It is the handler's deadline; the next call of the same read has none."""
    async with native() as (_, _, peer):
        peer.send(pack_call(1, b"left", b"\x90", timeout=20.0), pack_call(2, b"left", b"\x90"))
        assert 10.0 < (await peer.next())[2] <= 20.0
        assert (await peer.next())[2] is None


async def test_a_timeout_that_has_passed_runs_nothing() -> None:
    """A call that arrives with no time left is DeadlineExceeded before it begins."""
    async with native() as (service, _, peer):
        peer.send(pack_call(1, b"note", b"\x90", timeout=0.0))
        assert await peer.error() == (1, DeadlineExceeded.code)
        assert service.notes == []


async def test_a_timeout_that_passes_ends_the_call() -> None:
    """The handler is cancelled and the call answered with DeadlineExceeded."""
    async with native() as (service, _, peer):
        peer.send(pack_call(1, b"wait", pack(1), timeout=0.01))
        assert await peer.error() == (1, DeadlineExceeded.code)
        assert service.cancelled.is_set()


async def test_an_unknown_name_with_metadata_is_not_found() -> None:
    """The error is the same as for a plain call, and names it."""
    async with native() as (_, _, peer):
        peer.send(pack_call(1, b"nothing", b"\x90", metadata={"a": "b"}))
        kind, call_id, body = await peer.next()
        assert (kind, call_id, body.code) == (Kind.ERROR, 1, MethodNotFound.code)
        assert body.message == "no procedure is named 'nothing'"


# ---- NOTIFICATION


async def test_a_notification_runs_and_is_not_answered() -> None:
    """With its metadata and deadline, or without."""
    async with native() as (service, _, peer):
        peer.send(pack_call(0, b"note", b"\x90", kind=Kind.NOTIFICATION, timeout=9.0, metadata={"a": "b"}))
        peer.send(pack_call(0, b"note", b"\x90", kind=Kind.NOTIFICATION))
        assert await peer.quiet()
        (first, deadline), second = service.notes
        assert first == {"a": "b"}
        assert 5.0 < deadline.remaining() <= 9.0
        assert second == ({}, None)


@pytest.mark.parametrize("name", ["nothing", "add"])
async def test_a_notification_that_fails_is_silent(name: str) -> None:
    """An unknown name and wrong parameters are answered by nothing."""
    async with native() as (_, _, peer):
        peer.send(pack_call(0, name.encode(), pack("x"), kind=Kind.NOTIFICATION))
        assert await peer.quiet()


async def test_a_notification_that_waits_is_silent_too() -> None:
    """A coroutine is in flight while it waits, and leaves nothing when it is done, whatever the size of its result."""
    async with native() as (_, connection, peer):
        peer.send(pack_call(0, b"wait", pack(1), kind=Kind.NOTIFICATION))
        peer.send(pack_call(0, b"text", pack(20_000_000), kind=Kind.NOTIFICATION))
        assert await peer.quiet()
        assert len(connection.running) == 1
        peer.send(pack_call(1, b"let_go", b"\x90"))
        assert await peer.next() == (Kind.RESULT, 1, None)
        await until(lambda: not connection.running)
        assert await peer.quiet()


# ---- BATCH


async def test_a_batch_is_answered_when_its_last_item_is() -> None:
    """Its answers come in one array, errors too, while other calls are answered before."""
    async with stream() as (_, _, say, hear):
        await say([call("wait", 1, id=1), call("add", 2, 3, id=2), call("wait", 2, id=3), call("nothing", id=4)])
        await say(call("add", 1, 1, id=9))
        assert (await hear())["id"] == 9
        await say(call("let_go", id=10))
        assert (await hear())["id"] == 10
        answers = {answer["id"]: answer for answer in await hear()}
        assert {number: answers[number].get("result") for number in answers} == {1: 1, 2: 5, 3: 2, 4: None}
        assert answers[4]["error"]["code"] == MethodNotFound.code


async def test_a_batch_of_notifications_is_not_answered() -> None:
    """All of them run; not even an empty array comes."""
    async with stream() as (service, _, say, hear):
        await say([call("note"), call("note"), call("nothing")])
        await say(call("add", 1, 1, id=1))
        assert await hear() == {"jsonrpc": "2.0", "id": 1, "result": 2}
        assert len(service.notes) == 2


async def test_a_notification_in_a_batch_delays_nothing() -> None:
    """The array comes although the notification still waits."""
    async with stream() as (_, _, say, hear):
        await say([call("wait", 1), call("add", 1, 1, id=1)])
        assert await hear() == [{"jsonrpc": "2.0", "id": 1, "result": 2}]


async def test_the_limit_of_size_holds_for_a_whole_batch() -> None:
    """The answer that goes beyond it is ResourceExhausted; those before it stay."""
    async with stream(Limits(max_message_size=2_000)) as (_, _, say, hear):
        await say([call("text", 1_500, id=1), call("text", 1_500, id=2)])
        first, second = await hear()
        assert len(first["result"]) == 1_500
        assert second["error"]["code"] == ResourceExhausted.code
        assert "the answers of this batch" in second["error"]["message"]


async def test_a_batch_that_is_answered_gives_its_room_back() -> None:
    """What was held for it is counted no more."""
    async with stream() as (_, serving, say, hear):
        await say([call("text", 1_500, id=1), call("wait", 1, id=2)])
        await say(call("add", 1, 1, id=3))
        await hear()
        (connection,) = connections(serving)
        assert connection._held > 1_500
        await say(call("let_go", id=4))
        await hear()
        assert len(await hear()) == 2
        assert connection._held == 0


# ---- INVALID, FAILED, IGNORED


async def test_invalid_parameters_of_json_are_explained() -> None:
    """A call gets every error, a notification none."""
    async with stream() as (_, _, say, hear):
        await say(call("add", "x", None))
        await say(call("add", "x", None, id=1))
        answer = await hear()
        assert answer["id"] == 1
        assert [error["path"] for error in answer["error"]["data"]["errors"]] == ["$.a", "$.b"]


async def test_what_is_no_call_is_answered_with_its_error() -> None:
    """With its id where it has one, with null where it has none; the connection goes on."""
    async with stream() as (_, _, say, hear):
        await say({"method": "add", "id": 5})
        await say(7)
        await say(call("add", 1, 1, id=6))
        assert [(await hear())["id"] for _ in range(3)] == [5, None, 6]


async def test_an_unknown_notification_is_ignored() -> None:
    """It is answered by nothing, and what follows is run."""
    async with stream() as (_, _, say, hear):
        await say(call("nothing"))
        await say(call("add", 1, 1, id=1))
        assert (await hear())["id"] == 1


# ---- CANCEL, PING, answers


async def test_cancel_stops_a_call_without_an_answer() -> None:
    """The handler is cancelled, nothing is answered; unknown and finished ids change nothing."""
    async with native() as (service, connection, peer):
        peer.send(pack_call(1, b"add", pack(1, 1)), pack_call(2, b"wait", pack(1)))
        assert await peer.next() == (Kind.RESULT, 1, 2)
        peer.send(*(pack_frame(Kind.CANCEL, number) for number in (1, 2, 99)))
        await asyncio.wait_for(service.cancelled.wait(), 5)
        assert await peer.quiet()
        assert not connection.running


async def test_a_ping_comes_back() -> None:
    """As PONG, with its id and body; a pong that nobody asked for is ignored."""
    async with native() as (_, _, peer):
        peer.send(pack_frame(Kind.PONG, 3, b"x"), pack_frame(Kind.PING, 5, b"abc"))
        assert await peer.next() == (Kind.PONG, 5, b"abc")


async def test_answers_to_a_server_that_asked_nothing_are_dropped() -> None:
    """RESULT and ERROR for unknown ids are counted, and calls go on."""
    async with native() as (_, connection, peer):
        peer.send(pack_frame(Kind.RESULT, 9, b"\x01"), pack_frame(Kind.ERROR, 9, b"\xc1"))
        peer.send(pack_call(1, b"add", pack(1, 1)))
        assert await peer.next() == (Kind.RESULT, 1, 2)
        assert connection.caller.dropped == 2


async def test_an_error_that_cannot_be_read_is_an_error_still() -> None:
    """Its call fails with ParseError that says so."""
    async with calling_end() as (connection, peer):
        future = connection.caller.call(Request(b"sum", b"\x90", msgspec.msgpack.decode))
        await peer.next()
        peer.send(pack_frame(Kind.ERROR, 1, b"\xc1"))
        with pytest.raises(ParseError, match="its error cannot be read"):
            await future


# ---- HELLO


async def test_a_hello_chooses_the_codec_for_what_follows() -> None:
    """The call after it, in the same read, is read and answered in JSON."""
    async with serving_end(Service().server, codec="json") as (_, peer):
        peer.send(pack_call(1, b"add", b"[2,3]"), pack_call(2, b"add", b"[2,null]"))
        assert await peer.next() == (Kind.RESULT, 1, 5)
        kind, call_id, body = await peer.next()
        assert (kind, call_id, body.data["errors"][0]["path"]) == (Kind.ERROR, 2, "$.b")


async def test_a_hello_with_an_unknown_codec_ends_the_connection() -> None:
    """The last frame names the codecs that there are; what follows the hello is not run."""
    service = Service()
    async with serving_end(service.server, codec="pickle") as (connection, peer):
        peer.send(pack_call(1, b"note", b"\x90"))
        kind, _, body = await peer.next()
        assert (kind, body.code) == (Kind.GOING_AWAY, ParseError.code)
        assert body.message.startswith("no codec is named 'pickle'; there are: json, msgpack, raw")
        assert await peer.next() is None
        assert service.notes == []
        assert connection.leaving


async def test_a_clients_codec_is_its_own() -> None:
    """What a server's hello says of codecs changes nothing at the client."""
    async with calling_end() as (connection, peer):
        future = connection.caller.call(Request(b"sum", pack(), msgspec.msgpack.decode))
        binding = connection.binding
        await peer.next()
        CONTROL[Kind.HELLO](0, Hello("pickle"), connection)
        peer.send(pack_frame(Kind.RESULT, 1, b"\x05"))
        assert await future == 5
        assert connection.binding is binding


# ---- GOING_AWAY, CLOSED


@pytest.mark.parametrize("body", [b"", msgspec.msgpack.encode(ErrorBody(Unavailable.code, "idle for 60 s"))])
async def test_a_peer_that_goes_away_answers_what_it_saw(body: bytes) -> None:
    """Calls up to its last id are still answered; later ones and new ones are Unavailable, with its reason."""
    async with calling_end() as (connection, peer):
        seen, unseen = (connection.caller.call(Request(b"sum", pack(), msgspec.msgpack.decode)) for _ in range(2))
        await peer.next()
        peer.send(pack_frame(Kind.GOING_AWAY, 1, body))
        reason = "idle for 60 s" if body else "the server is going away"
        with pytest.raises(Unavailable, match=reason):
            await unseen
        with pytest.raises(Unavailable, match=reason):
            connection.caller.call(Request(b"sum", pack(), msgspec.msgpack.decode))
        peer.send(pack_frame(Kind.RESULT, 1, b"\x05"))
        assert await seen == 5
        assert not connection.lost


async def test_a_breach_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """The reason is sent, then the end; it is logged, and what runs is cancelled when the peer closes."""
    async with native() as (service, _, peer):
        peer.send(pack_call(1, b"wait", pack(1)))
        assert await peer.quiet()
        with caplog.at_level(logging.INFO, "rpcfast"):
            peer.send(pack_frame(99), pack_call(2, b"note", b"\x90"))
            kind, last_id, body = await peer.next()
        assert (kind, last_id) == (Kind.GOING_AWAY, 1)
        assert "kind 99" in body.message
        assert await peer.next() is None
        assert "frames of kind 99" in caplog.text
        await asyncio.wait_for(service.cancelled.wait(), 5)
        assert service.notes == []


async def test_a_breach_by_the_server_fails_the_calls() -> None:
    """They are raised as the reason why the connection was closed."""
    async with calling_end() as (connection, peer):
        future = connection.caller.call(Request(b"sum", pack(), msgspec.msgpack.decode))
        await peer.next()
        peer.send(pack_frame(99))
        with pytest.raises(Exception, match="frames of kind 99 are not spoken here"):
            await future
        assert connection.leaving


def test_every_kind_that_a_core_may_give_has_its_handler() -> None:
    """Streams, credit and events are not spoken yet: no core lets them through."""
    kinds = {value for name, value in vars(Kind).items() if name.isupper()}
    assert set(CONTROL) == kinds - {Kind.STREAM_ITEM, Kind.STREAM_END, Kind.CREDIT, Kind.EVENT}
