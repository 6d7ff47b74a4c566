"""rpcfast's own work per call, without kernel or socket: bytes go into a connection, answers into a null transport.

The connection is the one that `Server.serve` makes: `_make_loop` keeps the protocol factory that the server hands
to `create_server`, so that this file needs to know none of rpcfast's inner names.
"""

from __future__ import annotations

import asyncio
import contextlib
import runpy
import time
from collections.abc import Callable
from typing import Any

from benchmarks.load import HOST, Figures, Load
from benchmarks.load_python import Run
from benchmarks.rivals import _native, _rpcfast, service
from benchmarks.wire import Tally

NAME = "rpcfast in process"
SETTINGS = "native frames, 16 calls a read, on uvloop; process CPU time; nothing is sent"
_FIRST = 4096  # the first id: reads of 16 calls then never meet the end of a prepared run
_READS = 200  # reads in a measured part; after each part the loop turns once

_Factory = Callable[[], asyncio.Protocol]

missing, versions = _rpcfast.missing, _rpcfast.versions


def command(_: int) -> None:
    """Need no server: it runs in the driver."""


def drive(load: Load) -> Figures:
    """Feed reads of `in_flight` calls for the asked seconds of CPU."""
    made: asyncio.Queue[_Factory] = asyncio.Queue()
    with asyncio.Runner(loop_factory=lambda: _make_loop(made)) as runner:
        return runner.run(_drive(load, made))


def _make_loop(made: asyncio.Queue[_Factory]) -> asyncio.AbstractEventLoop:
    """Return a loop that puts aside how the server makes a connection."""
    import uvloop

    class Loop(uvloop.Loop):
        async def create_server(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
            made.put_nowait(protocol_factory)
            return await super().create_server(protocol_factory, *args, **kwargs)

    return Loop()


class _NullTransport(asyncio.Transport):
    """A connection that counts what is written to it."""

    written = 0
    feeding = True
    protocol: Any = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += len(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Never fill up."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Go on: what is fed is fed."""

    def resume_reading(self) -> None:
        """Go on."""

    def close(self) -> None:
        if self.feeding:
            msg = "rpcfast closed the connection: it did not like what it was fed"
            raise ConnectionError(msg)
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


async def _drive(load: Load, made: asyncio.Queue[_Factory]) -> Figures:
    server = runpy.run_path(str(service("quick")))["server"]
    serving = asyncio.create_task(server.serve(host=HOST, port=0))
    transport = _NullTransport()
    sniffer: Any = (await made.get())()
    sniffer.connection_made(transport)
    sniffer.data_received(_native.OPENING)  # which hands the transport over to a connection
    await asyncio.sleep(0.05)
    transport.written = 0
    figures = await _feed(load, transport.protocol, transport)
    transport.feeding = False
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    return figures


async def _feed(load: Load, connection: asyncio.Protocol, transport: _NullTransport) -> Figures:
    wire = _native.wire(load.procedure)
    calls = Run(wire.request, wire.request_id_at)
    per_part = _READS * load.in_flight
    next_id, times = _FIRST, list[int]()
    while sum(times) < load.seconds * 1e9:
        reads = [bytes(calls.take(next_id + at, load.in_flight)) for at in range(0, per_part, load.in_flight)]
        next_id += per_part
        start = time.process_time_ns()
        for read in reads:
            connection.data_received(read)
        await asyncio.sleep(0)
        times.append(time.process_time_ns() - start)
    await asyncio.sleep(0.05)  # for what a loop without eager tasks has not answered yet
    made = next_id - _FIRST
    wrong = abs(transport.written // len(wire.answer) - made)
    tally = Tally.of([part // per_part for part in times], wrong, sum(times))
    cpu = tally.nanoseconds / made / 1e3
    return Figures(made, tally.nanoseconds / 1e9, tally.p50 / 1e3, tally.p99 / 1e3, wrong, cpu, "in process")
