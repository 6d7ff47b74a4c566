"""The rows of the tables: what is measured against what, and the bar that was set for it. Data only."""

from __future__ import annotations

import dataclasses
from typing import Literal

from benchmarks.load import Engine

Metric = Literal["rate", "p50", "cpu"]


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A rival (a file of benchmarks/rivals) with what it is asked to do."""

    rival: str
    procedure: str = "sum"
    engine: Engine = "auto"

    @property
    def key(self) -> str:
        """The name under which its figures are kept."""
        return "/".join(
            [self.rival, *([self.procedure] * (self.procedure != "sum")), *([self.engine] * (self.engine != "auto"))]
        )


@dataclasses.dataclass(frozen=True)
class Bar:
    """What the row's first contestant should reach: a ratio to another, a difference from another, or a plain value."""

    value: float
    against: Contestant | None = None
    how: Literal["ratio", "difference", "value"] = "ratio"


@dataclasses.dataclass(frozen=True)
class Row:
    """One workload: the first contestant is the one that the others are compared with."""

    name: str
    title: str
    contestants: tuple[Contestant, ...]
    metric: Metric = "rate"  # calls/s (more is better), or microseconds (less is better)
    connections: int = 1
    in_flight: int = 1
    bars: tuple[Bar, ...] = ()


NATIVE = Contestant("rpcfast_native")
NATIVE_ASYNC = Contestant("rpcfast_native", "sum_async")
JSONRPC = Contestant("rpcfast_jsonrpc")
CLIENT = Contestant("rpcfast_client")
ASYNC_CLIENT = Contestant("rpcfast_async_client")
IN_PROCESS = Contestant("rpcfast_in_process")
IN_PROCESS_ASYNC = Contestant("rpcfast_in_process", "sum_async")
ECHO = Contestant("echo")
ECHO_C = Contestant("echo_c")
PING_PONG = Contestant("blocking_echo")
FASTAPI = Contestant("fastapi_rest")
GRPC_AIO = Contestant("grpc_aio")
GRPC_SYNC = Contestant("grpc_sync")
IMPORT = Contestant("imports", "rpcfast")
IMPORT_ASYNCIO = Contestant("imports", "asyncio")

ROWS = (
    Row(
        "generator",
        "The load generator itself, against servers that only echo: its ceiling",
        (Contestant("echo_c", engine="c"), Contestant("echo_c", engine="python"), ECHO),
        connections=32,
        in_flight=16,
    ),
    Row(
        "native-32x16",
        "Typed plain sum(a: int, b: int), native frames, 32 connections x 16 in flight",
        (NATIVE, ECHO, ECHO_C, FASTAPI, GRPC_AIO, GRPC_SYNC),
        connections=32,
        in_flight=16,
        bars=(Bar(1_000_000, how="value"), Bar(0.35, ECHO), Bar(80, FASTAPI)),
    ),
    Row(
        "jsonrpc-32x16",
        "The same in JSON-RPC over raw TCP",
        (JSONRPC, NATIVE),
        connections=32,
        in_flight=16,
        bars=(Bar(0.75, NATIVE),),
    ),
    Row(
        "async-32x16",
        "An async def that does not wait, native frames, 32 connections x 16 in flight",
        (NATIVE_ASYNC, NATIVE),
        connections=32,
        in_flight=16,
        bars=(Bar(0.50, NATIVE),),
    ),
    Row(
        "native-32x1",
        "Typed plain sum, native frames, 32 connections x 1 in flight",
        (NATIVE, ECHO, ECHO_C, FASTAPI, GRPC_AIO, GRPC_SYNC),
        connections=32,
        bars=(Bar(0.80, ECHO), Bar(84_000, how="value")),
    ),
    Row(
        "cpu-plain",
        "Server CPU per call in process, no socket, 16 calls a read: plain function",
        (IN_PROCESS,),
        metric="cpu",
        in_flight=16,
        bars=(Bar(0.8, how="value"),),
    ),
    Row(
        "cpu-async",
        "Server CPU per call in process, no socket, 16 calls a read: async def that does not wait",
        (IN_PROCESS_ASYNC, IN_PROCESS),
        metric="cpu",
        in_flight=16,
        bars=(Bar(1.5, how="value"),),
    ),
    Row(
        "client-sequential",
        "Client on one connection, one call after the other",
        (CLIENT, PING_PONG),
        metric="p50",
        bars=(Bar(1.10, PING_PONG),),
    ),
    Row(
        "async-client-256",
        "AsyncClient, 256 calls at once on one connection, client and server in Python",
        (ASYNC_CLIENT, GRPC_AIO),
        in_flight=256,
        bars=(Bar(250_000, how="value"), Bar(25, GRPC_AIO)),
    ),
    Row(
        "import",
        "import rpcfast in a fresh interpreter",
        (IMPORT, IMPORT_ASYNCIO),
        metric="p50",
        bars=(Bar(60_000, IMPORT_ASYNCIO, "difference"),),
    ),
)


def find(name: str) -> Row:
    """Return the row of that name; raises KeyError naming those there are."""
    for row in ROWS:
        if row.name == name:
            return row
    raise KeyError(", ".join(row.name for row in ROWS))
