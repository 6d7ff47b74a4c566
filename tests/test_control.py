"""What arrives besides plain calls: calls with extras, notifications, batches, pings, settings, the peer's leaving."""

import asyncio
import json
from typing import Any

import pytest

from rpcfast import Context, Server
from rpcfast.control import CONTROL
from rpcfast.wire.events import Kind
from rpcfast.wire.native import Hello, pack_call, pack_frame
from tests.services import connections, open_memory, until
from tests.test_connection import Peer, call, connect


def make_server(state: dict[str, Any]) -> Server:
    """What these tests call."""
    server = Server()
    state.update(go=asyncio.Event(), log=[])

    @server
    def note(value: int) -> int:
        state["log"].append(value)
        return value

    @server
    async def later(value: int) -> int:
        await state["go"].wait()
        return value

    @server
    def who(ctx: Context) -> list[Any]:
        return [dict(ctx.metadata), ctx.deadline is not None, ctx.cancelled()]

    return server


def json_call(method: str, params: Any = (), **members: Any) -> dict[str, Any]:
    """One JSON-RPC message."""
    return {"jsonrpc": "2.0", "method": method, "params": list(params), **members}


async def ask(running: Any, *messages: Any) -> list[Any]:
    """What is answered to some JSON messages, until the end."""
    reader, writer = await open_memory(running)
    writer.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return [json.loads(line) for line in answer.splitlines()]


def test_every_kind_that_a_core_gives_has_its_handler() -> None:
    """All but those of a later protocol, which no core lets through."""
    kinds = {value for name, value in vars(Kind).items() if name.isupper()}
    later = {Kind.STREAM_ITEM, Kind.STREAM_END, Kind.CREDIT, Kind.EVENT}
    assert set(CONTROL) == kinds - later


async def test_a_call_brings_its_metadata_and_deadline() -> None:
    """They reach its own call; the next one has none."""
    async with make_server({}).serving() as running:
        peer, _ = await connect(running)
        peer.send(call(1, "who", timeout=5.0, metadata={"a": "b"}), call(2, "who"))
        await until(lambda: len(peer.events) == 2)
        assert peer.results() == [(1, [{"a": "b"}, True, False]), (2, [{}, False, False])]


async def test_a_ping_is_answered_with_what_it_brought() -> None:
    """Its id and its body come back; a pong is taken without a word."""
    async with make_server({}).serving() as running:
        peer, _ = await connect(running)
        peer.send(pack_frame(Kind.PONG, 1), pack_frame(Kind.PING, 7, b"body"))
        await until(lambda: peer.events)
        assert peer.events == [(Kind.PONG, 7, b"body")]


async def test_a_notification_is_run_and_not_answered() -> None:
    """Also when it fails, waits, or expires."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, connection = await connect(running)
        one_way = {"kind": Kind.NOTIFICATION}
        peer.send(
            pack_call(0, b"note", b"\x91\x01", **one_way),
            pack_call(0, b"note", b"\x91\xa1x", **one_way),
            pack_call(0, b"nothing", b"\x90", **one_way),
            pack_call(0, b"later", b"\x91\x01", **one_way),
            pack_call(0, b"later", b"\x91\x02", timeout=0.01, **one_way),
            call(1, "note", 2),
        )
        await until(lambda: peer.events)
        await until(lambda: len(connection.running) == 1)
        state["go"].set()
        await until(lambda: not len(connection.running))
        assert peer.results() == [(1, 2)]
        assert state["log"] == [1, 2]


async def test_a_hello_chooses_the_codec_of_what_follows() -> None:
    """Calls behind it in the same read are in that codec; the answers too."""
    async with make_server({}).serving() as running:
        peer = Peer()
        running.accept(peer)
        hello = b"\x81\xa5codec\xa4json"
        peer.send(pack_frame(Kind.HELLO, 0, hello), pack_call(1, b"note", b"[5]"), pack_call(2, b"note", b'["x"]'))
        await until(lambda: len(peer.events) == 2)
        assert peer.events[0] == (Kind.RESULT, 1, b"5")
        assert json.loads(peer.events[1][2])["code"] == -32602
        assert Hello().codec == "msgpack"


async def test_a_codec_that_there_is_not_ends_the_connection() -> None:
    """With the reason; what follows is not run."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer = Peer()
        running.accept(peer)
        peer.send(pack_frame(Kind.HELLO, 0, b"\x81\xa5codec\xa3xml"), call(1, "note", 1))
        await until(lambda: peer.ended)
        (kind, _, error) = peer.events[-1]
        assert kind == Kind.GOING_AWAY
        assert "no codec is named 'xml'" in error.message
        assert state["log"] == []


async def test_a_client_that_goes_away_is_still_answered() -> None:
    """Its GOING_AWAY concerns what the server would call; its own calls are answered."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        peer, connection = await connect(running)
        peer.send(call(1, "later", 1), pack_frame(Kind.GOING_AWAY))
        await until(lambda: connection.leaving)
        state["go"].set()
        await until(lambda: peer.events)
        assert peer.results() == [(1, 1)]


async def test_a_batch_is_answered_when_its_last_call_is() -> None:
    """Nothing leaves before; then all of it in one array, notifications without a place in it."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        reader, writer = await open_memory(running)
        batch = [json_call("later", [1], id=1), json_call("note", [2], id="two"), json_call("note", [3])]
        writer.write(json.dumps([*batch, json_call("nothing", id=4), 5]).encode() + b"\n")
        writer.write(json.dumps(json_call("note", [6], id=6)).encode() + b"\n")
        assert json.loads(await reader.readline())["id"] == 6
        state["go"].set()
        answers = json.loads(await reader.readline())
        assert {answer["id"]: answer.get("result", answer.get("error", {}).get("code")) for answer in answers} == {
            1: 1,
            "two": 2,
            4: -32601,
            None: -32600,
        }
        assert state["log"] == [2, 3, 6]
        writer.close()


async def test_a_batch_of_notifications_is_not_answered() -> None:
    """Not even with an empty array; also when they wait."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        state["go"].set()
        batch = [json_call("note", [1]), json_call("later", [1]), json_call("nothing")]
        assert await ask(running, batch, json_call("note", [2], id=1)) == [{"jsonrpc": "2.0", "id": 1, "result": 2}]
        assert state["log"] == [1, 2]


async def test_one_id_may_be_used_twice_at_once() -> None:
    """JSON-RPC does not forbid it: both calls are answered under it."""
    state: dict[str, Any] = {}
    async with make_server(state).serving() as running:
        reader, writer = await open_memory(running)
        for value in (1, 2):
            writer.write(json.dumps(json_call("later", [value], id="same")).encode() + b"\n")
        await until(lambda: connections(running) and len(connections(running)[0].running) == 2)
        state["go"].set()
        answers = [json.loads(await reader.readline()) for _ in range(2)]
        assert [(answer["id"], answer["result"]) for answer in answers] == [("same", 1), ("same", 2)]
        writer.close()


async def test_what_a_batch_held_is_given_back() -> None:
    """The account of answers that wait for their batch is empty when the batch has left."""
    server, go = Server(), asyncio.Event()

    @server
    def bulk(size: int) -> str:
        return "x" * size

    @server
    async def wait() -> None:
        await go.wait()

    async with server.serving() as running:
        reader, writer = await open_memory(running)
        writer.write(json.dumps([json_call("bulk", [1_000], id=1), json_call("wait", id=2)]).encode() + b"\n")
        await until(lambda: connections(running) and connections(running)[0]._held == 1_002)
        go.set()
        assert len(json.loads(await reader.readline())) == 2
        assert connections(running)[0]._held == 0
        writer.close()


@pytest.mark.parametrize("kind", [Kind.RESULT, Kind.ERROR])
async def test_answers_that_nobody_asked_for_are_counted(kind: int) -> None:
    """A server that made no call drops them."""
    async with make_server({}).serving() as running:
        peer, connection = await connect(running)
        peer.send(pack_frame(kind, 1, b"\xc0"), pack_frame(Kind.PING, 2))
        await until(lambda: peer.events)
        assert connection.caller.dropped == 1
