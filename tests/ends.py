"""A connection in memory: a real `Connection` at one end, native frames by hand at the other. No tests here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from rpcfast.codecs import get_codec
from rpcfast.connection import Connection
from rpcfast.errors import ErrorBody
from rpcfast.limits import Limits
from rpcfast.service import Registry, Runtime, native_binding
from rpcfast.transport import memory
from rpcfast.wire.events import Kind
from rpcfast.wire.native import Hello, NativeCore, pack_frame


def pack(*values: Any) -> bytes:
    """Encode parameters by position."""
    return msgspec.msgpack.encode(values)


class Peer(asyncio.Protocol):
    """Speaks native frames by hand; what arrives is read with `next`."""

    def __init__(self, core: NativeCore, codec: str = "msgpack") -> None:
        self.core = core
        self._decode: Any = msgspec.json.decode if codec == "json" else msgspec.msgpack.decode
        self.transport: Any = None
        self._events: asyncio.Queue[Any] = asyncio.Queue()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.core.receive_data(data)
        for event in self.core.next_events():
            if event[0] != Kind.HELLO:
                self._events.put_nowait(event)
        self._flush()

    def eof_received(self) -> bool:
        self._events.put_nowait(None)
        return False

    def _flush(self) -> None:
        if data := b"".join(self.core.data_to_send()):
            self.transport.write(data)

    def send(self, *frames: bytes) -> None:
        """Write frames, in one piece."""
        self.transport.write(b"".join(frames))

    async def next(self) -> Any:
        """The next event, hellos aside: `(kind or name, id, payload)`, answers decoded. None: no more come."""
        event = await asyncio.wait_for(self._events.get(), 5)
        if event is None:
            return None
        kind, call_id, payload = event
        if kind == Kind.RESULT:
            return kind, call_id, self._decode(payload)
        return kind, call_id, self._decode(payload, type=ErrorBody) if kind == Kind.ERROR else payload

    async def error(self) -> tuple[int, int]:
        """The id and the code of the next answer, which is an error."""
        kind, call_id, body = await self.next()
        assert kind == Kind.ERROR, body
        return call_id, body.code

    async def quiet(self) -> bool:
        """Whether nothing is sent to this end before the answer to a ping, which is sent last."""
        self.send(pack_frame(Kind.PING, 77, b"?"))
        return await self.next() == (Kind.PONG, 77, b"?")


@asynccontextmanager
async def serving_end(
    registry: Registry, *, codec: str = "msgpack", **limits: Any
) -> AsyncIterator[tuple[Connection, Peer]]:
    """A connection of a server, and its client by hand, whose hello asks for `codec`."""
    runtime = Runtime(registry, Limits(**limits))
    binding = runtime.native("msgpack")
    gone = asyncio.Event()
    connection = Connection(NativeCore(), binding, runtime.limits, on_close=lambda _: gone.set(), rebind=runtime.native)
    peer = Peer(NativeCore(client=True, hello=Hello(codec)), codec)
    memory.connect_pair(peer, connection)
    try:
        yield connection, peer
    finally:
        await _ended(peer, connection, gone)
        runtime.close()


@asynccontextmanager
async def calling_end(**limits: Any) -> AsyncIterator[tuple[Connection, Peer]]:
    """A connection of a client, and its server by hand."""
    bounds, gone = Limits(**limits), asyncio.Event()
    binding = native_binding(get_codec("msgpack"), bounds)
    core = NativeCore(client=True)
    connection = Connection(core, binding, bounds, on_close=lambda _: gone.set(), only_calls=True)
    peer = Peer(NativeCore())
    memory.connect_pair(connection, peer)
    try:
        yield connection, peer
    finally:
        await _ended(peer, connection, gone)


async def _ended(peer: Peer, connection: Connection, gone: asyncio.Event) -> None:
    peer.transport.abort()
    connection.abort()
    await asyncio.wait_for(gone.wait(), 5)
    if tasks := connection.cancel_all():
        await asyncio.wait(tasks, timeout=5)
