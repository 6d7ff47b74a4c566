"""What a handler may know of its call; floor 2: values only.

A `Sink` is where a call's answer goes, and what came with the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

__all__ = ["Call", "Context", "Deadline", "Peer", "Sink", "current_context"]

NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})


class Deadline(msgspec.Struct, frozen=True):
    """A point in time, on the clock of `time.monotonic()`."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The deadline that lies `seconds` ahead."""
        return cls(monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds left; never less than 0."""
        return max(0.0, self.at - monotonic())


class Peer(msgspec.Struct, frozen=True):
    """Who is at the other end: the protocol it speaks, and its address, '' where the transport has none."""

    protocol: str
    address: str


class Sink(Protocol):
    """Where answers go. The connection is the sink of calls that carry nothing but parameters; others get a `Call`."""

    out: list[bytes]
    metadata: Mapping[str, str]
    deadline: Deadline | None
    connection: Any
    wanted: bool
    """Whether anybody waits for an answer."""

    def check_size(self, size: int) -> None:
        """Hear of an answer of `size` bytes before it is queued; raises `ResourceExhausted` beyond the limit."""
        ...

    def suspended(self) -> None:
        """Hear that the answer will come later; `answered` follows."""
        ...

    def answered(self) -> None:
        """Hear that a suspended call has queued its answer."""
        ...


class Call:
    """The sink of one call that carries metadata or a deadline."""

    __slots__ = ("_sink", "connection", "deadline", "metadata", "out", "wanted")

    def __init__(self, sink: Sink, deadline: Deadline | None, metadata: Mapping[str, str]) -> None:
        self._sink = sink
        self.connection = sink.connection
        self.out = sink.out
        self.wanted = sink.wanted
        self.deadline = deadline
        self.metadata = metadata

    def check_size(self, size: int) -> None:
        """See `Sink.check_size`."""
        self._sink.check_size(size)

    def suspended(self) -> None:
        """See `Sink.suspended`."""
        self._sink.suspended()

    def answered(self) -> None:
        """See `Sink.answered`."""
        self._sink.answered()


def earliest(deadline: Deadline | None, timeout: float | None) -> Deadline | None:
    """The nearer of a deadline and a timeout (seconds from now), either of which may be missing."""
    if timeout is None:
        return deadline
    other = Deadline.after(timeout)
    return other if deadline is None or other.at < deadline.at else deadline


class Context:
    """The call that a handler serves. Take it as a parameter annotated `Context`, or from `current_context()`.

    Safe to read from any thread.
    """

    __slots__ = ("_sink",)

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def __repr__(self) -> str:
        return f"<Context of a call from {self.peer.protocol} {self.peer.address}, deadline {self.deadline}>"

    @property
    def deadline(self) -> Deadline | None:
        """When the answer is no longer wanted; `deadline.remaining()` in seconds. None when nobody set one."""
        return self._sink.deadline

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the caller sent beside the parameters; read-only."""
        return self._sink.metadata

    @property
    def peer(self) -> Peer:
        """Who calls."""
        peer: Peer = self._sink.connection.peer
        return peer

    @property
    def identity(self) -> str | None:
        """Who the caller proved to be; None when it proved nothing."""
        identity: str | None = self._sink.connection.identity
        return identity

    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more: cancelled, past its deadline, or the connection is gone."""
        if self._sink.connection.lost or (self.deadline is not None and self.deadline.remaining() == 0):
            return True
        job = current_job.get()
        if job is not None:
            return not job.wanted
        try:
            task = asyncio.current_task()
        except RuntimeError:  # in a thread that the handler started
            return False
        return task is not None and task.cancelling() > 0


class Job(Protocol):
    """A call that runs in a thread."""

    wanted: bool
    """Whether its caller still waits."""


current_job: Final[ContextVar[Job | None]] = ContextVar("rpcfast_job", default=None)
current_sink: Final[ContextVar[Sink | None]] = ContextVar("rpcfast_sink", default=None)


def current_context() -> Context:
    """The context of the call being handled here: in a handler, in what it calls, in tasks and threads that it starts.

    Raises `LookupError` outside of a call.
    """
    sink = current_sink.get()
    if sink is None:
        raise LookupError("no call is being handled here; current_context() works inside a procedure")
    return Context(sink)
