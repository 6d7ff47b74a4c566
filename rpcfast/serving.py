"""One run of a service in one event loop: accepts, sniffs the first byte, keeps the connections, stops; floor 5."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from time import monotonic
from typing import Any, Final, Self

from rpcfast.connection import Connection
from rpcfast.errors import Unavailable
from rpcfast.limits import Limits
from rpcfast.service import Registry, Runtime
from rpcfast.transport import memory, pipes, stream
from rpcfast.watchdog import Watchdog
from rpcfast.wire.jsonrpc import JsonRpcCore
from rpcfast.wire.native import MAGIC, Hello, NativeCore

__all__ = ["Serving"]

logger = logging.getLogger("rpcfast")

TICK: Final = 1.0


class Serving:
    """`async with Serving(registry, limits, lifespan)`: from its lifespan's start to the last call's end."""

    def __init__(self, registry: Registry, limits: Limits, lifespan: AbstractAsyncContextManager[Any] | None) -> None:
        self.runtime = Runtime(registry, limits)
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.refused = 0
        """Connections closed for what they began with, or because there were too many."""
        self.accepted = 0
        self._lifespan = lifespan
        self._stack = AsyncExitStack()
        self._open: set[Sniffer | Connection] = set()
        self._listeners: list[asyncio.AbstractServer] = []
        self._max_connections = _affordable(limits.max_connections)
        self._watchdog = Watchdog(registry.procedures)
        self._ticker: asyncio.TimerHandle | None = None
        self._emptied = asyncio.Event()
        self._stopping = False

    def __repr__(self) -> str:
        return f"<Serving {len(self.runtime.registry.procedures)} procedures, {len(self._open)} connections>"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:  # undoes what was begun when a later step fails
            if self._lifespan is not None:
                await stack.enter_async_context(self._lifespan)
            stack.callback(self.runtime.close)
            self._watchdog.start()
            stack.callback(self._watchdog.stop)
            self._tick()
            stack.callback(self._end)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:  # noqa: PYI036  # passed on as they come
        try:
            await self.stop(0.0)
        finally:
            await self._stack.__aexit__(*exc_info)

    # ---- connections

    async def listen(self, sock: socket.socket) -> None:
        """Accept connections of a bound, listening socket, until `stop`."""
        if sock.family == socket.AF_UNIX:
            listener = await self.loop.create_unix_server(self.sniff, sock=sock)
        else:
            listener = await self.loop.create_server(self.sniff, sock=sock, backlog=stream.BACKLOG)
        self._listeners.append(listener)

    async def stdio(self) -> asyncio.Future[None]:
        """Serve this process's own standard input and output; the future is done when that connection has ended."""
        ended: asyncio.Future[None] = self.loop.create_future()
        sniffer = self.sniff()
        sniffer.on_close = partial(_end, ended)
        await pipes.connect_stdio(lambda: sniffer)
        return ended

    def accept(self, client: asyncio.Protocol) -> None:
        """Connect a protocol of this loop in memory."""
        memory.connect_pair(client, self.sniff())

    def sniff(self) -> Sniffer:
        """The protocol of a new connection, until its first byte is there."""
        return Sniffer(self)

    def full(self) -> bool:
        """Whether one more connection is too many."""
        return self._stopping or len(self._open) >= self._max_connections

    def opened(self, protocol: Sniffer | Connection) -> None:
        """Keep a connection until `closed`."""
        self._open.add(protocol)
        self.accepted += 1

    def closed(self, protocol: Sniffer | Connection) -> None:
        """Forget a connection."""
        self._open.discard(protocol)
        if not self._open:
            self._emptied.set()

    def choose(self, data: bytes, on_close: Callable[[Connection], None]) -> Connection | None:
        """The connection for what a peer began with; None when it is no protocol of this port."""
        runtime, limits = self.runtime, self.limits
        if data[:1] == MAGIC[:1]:
            core = NativeCore(hello=Hello(max_size=limits.max_message_size))
            return Connection(core, runtime.native("msgpack"), limits, on_close=on_close, rebind=runtime.native)
        if data[:1] in _JSON_STARTS:
            json = JsonRpcCore(runtime.contract, max_size=limits.max_message_size, max_batch=limits.max_batch)
            return Connection(json, runtime.jsonrpc(), limits, on_close=on_close)
        return None

    def _tick(self) -> None:
        self._ticker = self.loop.call_later(TICK, self._tick)
        now = monotonic()
        for protocol in list(self._open):
            protocol.tick(now)

    # ---- the end

    async def stop(self, patience: float) -> None:
        """Take no new connections and calls; give calls in flight `patience` seconds to finish, then cancel them.

        Cancelling this, or calling it again meanwhile, ends the wait and closes everything at once.
        """
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        for protocol in list(self._open):
            protocol.go_away(Unavailable("the server is stopping"))
        deadline = monotonic() + patience
        # Looked at, not signalled: every answer would pay for a signal that is wanted once.
        while any(protocol.busy for protocol in self._open) and monotonic() < deadline:  # noqa: ASYNC110  # see above
            await asyncio.sleep(0.01)
        await self._close_all()

    async def _close_all(self) -> None:
        tasks = [task for protocol in list(self._open) for task in protocol.cancel_all()]
        for protocol in list(self._open):
            protocol.close()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
        if self._open:
            self._emptied.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), GRACE)
        for protocol in list(self._open):
            protocol.abort()

    def _end(self) -> None:
        """The last step, which nothing can interrupt."""
        if self._ticker is not None:
            self._ticker.cancel()
        for protocol in list(self._open):
            protocol.cancel_all()
            protocol.abort()


GRACE: Final = 1.0
"""Seconds that handlers get to clean up once they are cancelled, and peers to take their last bytes."""
_JSON_STARTS: Final = frozenset((b"{", b"[", b" ", b"\t", b"\r", b"\n"))


class Sniffer(asyncio.Protocol):
    """A connection before its first byte. Decides once, then hands the transport over for good."""

    reads = 0
    busy = False

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._transport: Any = None
        self._since = monotonic()
        self.on_close: Callable[[], Any] | None = None

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol.connection_made`."""
        self._transport = transport
        if self._serving.full():
            self._serving.refused += 1
            transport.abort()
            return
        stream.tune(transport)
        self._serving.opened(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol.data_received`: the first bytes."""
        connection = self._serving.choose(data, self._connection_lost)
        self._serving.closed(self)
        if connection is None:
            self._serving.refused += 1
            logger.info("closing a connection that begins with %r: no protocol of this port", data[:16])
            self._transport.abort()
            return
        self._serving.opened(connection)
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        connection.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol.connection_lost`: before any byte came."""
        del exc
        self._serving.closed(self)
        self._ended()

    def _connection_lost(self, connection: Connection) -> None:
        self._serving.closed(connection)
        self._ended()

    def _ended(self) -> None:
        if self.on_close is not None:
            self.on_close()

    def tick(self, now: float) -> None:
        """Close a connection that says nothing."""
        if now - self._since > self._serving.limits.first_byte_timeout:
            self._transport.abort()

    def go_away(self, error: Any) -> None:
        """There is nobody to tell yet: close."""
        del error
        self._transport.close()

    def close(self) -> None:
        """Close."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def cancel_all(self) -> list[asyncio.Task[None]]:
        """Nothing runs here."""
        return []


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _affordable(limit: int) -> int:
    """At most four fifths of the descriptors that this process may open, so that handlers have some left."""
    try:
        import resource
    except ImportError:  # Windows
        return limit
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit if soft == resource.RLIM_INFINITY else min(limit, int(soft * 0.8))
