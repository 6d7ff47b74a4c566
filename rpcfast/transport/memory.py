"""Two protocols in one loop, connected without a socket; floor 1.

Bytes are handed over in order, never within the call that wrote them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

__all__ = ["MemoryTransport", "connect_pair"]

HIGH_WATER: Final = 64 * 1024


class MemoryTransport(asyncio.Transport):
    """One end. What is written reaches the other end's protocol in the next turn of the loop."""

    def __init__(self, name: str) -> None:
        super().__init__({"peername": name})
        self._loop = asyncio.get_running_loop()
        self._protocol: Any = None
        self._peer: MemoryTransport | None = None
        self._incoming: deque[bytes] = deque()
        self._waiting = 0  # bytes in `_incoming`
        self._reading = True
        self._scheduled = False
        self._closing = False
        self._ended = False  # the other end will send no more
        self._told = False  # and the protocol knows
        self._high = HIGH_WATER
        self._paused = False

    def __repr__(self) -> str:
        return f"<MemoryTransport {'closing' if self._closing else 'open'}, {self._waiting} bytes unread>"

    def set_protocol(self, protocol: Any) -> None:
        """See `asyncio.BaseTransport.set_protocol`."""
        self._protocol = protocol

    def get_protocol(self) -> Any:
        """See `asyncio.BaseTransport.get_protocol`."""
        return self._protocol

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport.is_closing`."""
        return self._closing

    def is_reading(self) -> bool:
        """See `asyncio.ReadTransport.is_reading`."""
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.WriteTransport.set_write_buffer_limits`; `low` is half of `high`."""
        del low
        self._high = HIGH_WATER if high is None else high

    def get_write_buffer_size(self) -> int:
        """See `asyncio.WriteTransport.get_write_buffer_size`: what the other end has not taken."""
        return self._peer._waiting if self._peer is not None else 0  # noqa: SLF001  # the other end of one thing

    def write(self, data: Any) -> None:
        """See `asyncio.WriteTransport.write`."""
        peer = self._peer
        if self._closing or peer is None or not data:
            return
        peer._receive(bytes(data))  # noqa: SLF001
        if peer._waiting > self._high and not self._paused:  # noqa: SLF001
            self._paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """See `asyncio.WriteTransport.can_write_eof`."""
        return True

    def write_eof(self) -> None:
        """See `asyncio.WriteTransport.write_eof`."""
        if self._peer is not None:
            self._peer._ended = True  # noqa: SLF001
            self._peer._schedule()  # noqa: SLF001

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport.pause_reading`."""
        self._reading = False

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport.resume_reading`."""
        if not self._closing:
            self._reading = True
            self._schedule()

    def close(self) -> None:
        """See `asyncio.BaseTransport.close`: what was written before still arrives."""
        if not self._closing:
            self._closing = True
            self._reading = False
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """See `asyncio.WriteTransport.abort`."""
        if self._peer is not None:
            self._peer._incoming.clear()  # noqa: SLF001
            self._peer._waiting = 0  # noqa: SLF001
        self.close()

    def _lose(self, error: Exception | None) -> None:
        peer, self._peer = self._peer, None
        self._incoming.clear()
        self._waiting = 0
        self._protocol.connection_lost(error)
        if peer is not None:
            peer._peer_closed()  # noqa: SLF001

    def _peer_closed(self) -> None:
        self._peer = None
        self._ended = True
        if self._paused:  # nobody is there to take what waits
            self._paused = False
            self._protocol.resume_writing()
        self._schedule()

    def _receive(self, data: bytes) -> None:
        self._incoming.append(data)
        self._waiting += len(data)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        while self._incoming and self._reading:
            data = self._incoming.popleft()
            self._waiting -= len(data)
            self._protocol.data_received(data)
        peer = self._peer
        if peer is not None and peer._paused and self._waiting <= peer._high // 2:  # noqa: SLF001
            peer._paused = False  # noqa: SLF001
            peer._protocol.resume_writing()  # noqa: SLF001
        if self._ended and self._reading and not self._incoming:
            keep = self._told or self._protocol.eof_received()
            self._told = True
            if not keep or self._peer is None:
                self.close()


def connect_pair(one: asyncio.Protocol, other: asyncio.Protocol) -> tuple[MemoryTransport, MemoryTransport]:
    """Connect two protocols of the running loop with each other."""
    left, right = MemoryTransport("memory"), MemoryTransport("memory")
    left._peer, right._peer = right, left  # noqa: SLF001
    left.set_protocol(one)
    right.set_protocol(other)
    one.connection_made(left)
    other.connection_made(right)
    return left, right
