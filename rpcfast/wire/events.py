"""The events that every protocol speaks, and the five verbs of a core; floor 1: words only.

An event is a tuple `(key, id, payload)`. A call's key says which procedure: what it is depends on the protocol (the
name's bytes in native frames, the message's class in JSON-RPC) and is looked up in one table, where every other event
is found too, under its kind. That makes dispatch one dict look-up, whatever arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

__all__ = ["Core", "Event", "Kind"]

Event: TypeAlias = tuple[Any, Any, Any]


class Kind:
    """Kinds of event: plain integers, since an Enum's hash is a Python call.

    1 to 13 stand in native frames: docs/protocol.md.
    """

    CALL: Final = 1
    """In: `payload = (key, params, timeout, metadata)`: a call that carries more than parameters."""
    NOTIFICATION: Final = 2
    """`payload` as for CALL; no answer is wanted."""
    RESULT: Final = 3
    """`payload` = the encoded value."""
    ERROR: Final = 4
    """`payload` = the encoded `ErrorBody`."""
    STREAM_ITEM: Final = 5
    STREAM_END: Final = 6
    CANCEL: Final = 7
    """The caller no longer wants the answer to `id`."""
    CREDIT: Final = 8
    PING: Final = 9
    PONG: Final = 10
    GOING_AWAY: Final = 11
    """`payload` = `ErrorBody` or None: no new calls here; calls with a larger id than `id` were not run."""
    HELLO: Final = 12
    """`payload` = the peer's settings, a dict."""
    EVENT: Final = 13
    INVALID: Final = 20
    """`payload = (key, builtins)`: a call whose parameters do not fit; `id` is `msgspec.UNSET` for a notification."""
    FAILED: Final = 21
    """`payload` = the `RPCError` to answer to `id`: the message was no call that can be run."""
    BATCH: Final = 22
    """`payload` = the events of one message; their answers travel together."""
    IGNORED: Final = 23
    """A notification that cannot be run: nobody is told, it is only counted."""
    CLOSED: Final = 24
    """`payload` = an `RPCError`: the peer broke the protocol. Close, after the answer that is in `data_to_send()`."""


class Core(Protocol):
    """One protocol without I/O: feed it bytes, take events; send events, take bytes.

    It never raises for what a peer sent, and gives nothing after CLOSED.
    """

    def receive_data(self, data: bytes) -> None:
        """Take bytes that arrived, cut anywhere."""
        ...

    def receive_eof(self) -> None:
        """The peer will send no more. What it sent before is still answered."""
        ...

    def next_events(self) -> list[Event]:
        """The events since the last time, in order."""
        ...

    def send(self, event: Event) -> None:
        """Queue an event for the peer."""
        ...

    def data_to_send(self) -> Sequence[bytes]:
        """The buffers to write, in order, since the last time."""
        ...
