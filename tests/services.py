"""What the tests of the server share: a served service, and a client of raw JSON-RPC. No tests here.

Found by path, since tests are not a package.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rpcfast import Server
from rpcfast.connection import Connection
from rpcfast.errors import ErrorBody, Unavailable
from rpcfast.serving import Serving
from rpcfast.transport import memory


@asynccontextmanager
async def served(server: Server, **options: Any) -> AsyncIterator[str]:
    """Serve on a free port; gives the address. Ends by the server's own stop."""
    ready = asyncio.Event()
    if "uds" not in options:
        options = {"port": 0, **options}
    task = asyncio.ensure_future(server.serve(**options, on_ready=lambda _: ready.set()))
    await first(ready.wait(), task)
    try:
        yield server.addresses[0]
    finally:
        server.stop()
        await asyncio.wait_for(task, 20)


async def first(wanted: Any, task: asyncio.Future[Any]) -> None:
    """Wait for something, or raise what ends `task` before it."""
    waiter = asyncio.ensure_future(wanted)
    await asyncio.wait([waiter, task], return_when=asyncio.FIRST_COMPLETED)
    if not waiter.done():
        waiter.cancel()
        await task


async def until(condition: Any, seconds: float = 10.0) -> None:
    """Turn the loop until a condition holds that no event tells of."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def open_stream(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A plain connection to a served address."""
    if address.startswith("unix://"):
        return await asyncio.open_unix_connection(address.removeprefix("unix://"), limit=2**26)
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    return await asyncio.open_connection(host.strip("[]"), int(port), limit=2**26)


async def open_memory(serving: Serving) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A plain connection to a server of this loop."""
    reader = asyncio.StreamReader(limit=2**26)
    protocol = asyncio.StreamReaderProtocol(reader)
    serving.accept(protocol)
    transport = protocol._transport
    assert isinstance(transport, memory.MemoryTransport)
    return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())


class JsonClient:
    """A small client of JSON-RPC over a stream: one line a message, answers matched by id."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._task = asyncio.ensure_future(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                future = self._waiting.pop(message["id"])
                if "error" in message:
                    future.set_exception(ErrorBody(**message["error"]).to_error())
                else:
                    future.set_result(message["result"])
        finally:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(Unavailable("the connection was lost"))

    async def call(self, name: str, /, *args: Any, **params: Any) -> Any:
        """Call, and wait for the answer."""
        self._last_id += 1
        future = self._waiting[self._last_id] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "method": name, "params": params or args, "id": self._last_id})
        await self._writer.drain()
        return await future

    async def notify(self, name: str, *args: Any) -> None:
        """Call without an answer."""
        self._send({"jsonrpc": "2.0", "method": name, "params": args})

    def _send(self, message: Any) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await asyncio.wait([self._task])


def connections(serving: Serving) -> list[Connection]:
    """The connections that have said what they speak."""
    return [protocol for protocol in serving._open if isinstance(protocol, Connection)]
