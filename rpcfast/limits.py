"""How much a peer may ask for; floor 1: numbers only.

Every length, wait and queue of a server is bounded by one of these.
"""

from __future__ import annotations

import msgspec

__all__ = ["Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a server. Reaching one answers `ResourceExhausted`, or closes the connection, before work is done."""

    max_message_size: int = 16 * 1024 * 1024
    """Largest message in either direction, bytes (gRPC: 4 MiB received; uvicorn: none)."""
    max_batch: int = 5_000
    """Most calls in one batch."""
    max_connections: int = 65_536
    """Most connections at once; one more is closed as it is accepted."""
    max_in_flight: int = 1_024
    """Most calls of one connection that run at once, cancelled ones included until their handler ends."""
    max_threads: int = 32
    """Most `thread=True` handlers that run at once."""
    max_waiting: int = 10_000
    """Most calls that wait for one of those threads."""
    first_byte_timeout: float = 10.0
    """Seconds until a new connection must have said which protocol it speaks."""
    frame_timeout: float = 30.0
    """Seconds that a message may take to arrive whole, unless it comes faster than `min_rate`."""
    min_rate: float = 240.0
    """Bytes a second that keep a long message alive."""
    idle_timeout: float = 60.0
    """Seconds without a message and without a call in flight after which a connection is closed (nginx: 75)."""
    write_timeout: float = 10.0
    """Seconds that a peer may leave its answers unread; then the connection is cut."""
    write_high_water: int = 64 * 1024
    """Bytes unread by the peer at which reading from it stops."""
    drain_timeout: float = 30.0
    """Seconds that calls in flight get to finish when the server stops."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"Limits({name}={getattr(self, name)!r}): it must be more than 0")
