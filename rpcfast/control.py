"""What arrives besides plain calls, each a function `(call id, payload, sink)`; floor 3.

And the sinks of answers that do not go straight to the peer: a notification's, a batch's.

A `sink` here is a connection, or a sink whose `connection` is one; no protocol is known by name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rpcfast.call import NO_METADATA, Call, Deadline, current_sink, earliest
from rpcfast.errors import DeadlineExceeded, ParseError, ResourceExhausted, Unavailable
from rpcfast.wire.events import Kind

__all__ = ["CONTROL", "BatchSink", "Discard"]

logger = logging.getLogger("rpcfast")


class Discard:
    """The sink of a notification: nobody waits for an answer."""

    wanted = False

    def __init__(self, connection: Any, metadata: Mapping[str, str] | None = None) -> None:
        self.connection = connection
        self.out: list[bytes] = []
        self.metadata = metadata or NO_METADATA
        self.deadline: Deadline | None = None

    def check_size(self, size: int) -> None:
        """See `call.Sink.check_size`: what is thrown away may have any size."""

    def suspended(self) -> None:
        """See `call.Sink.suspended`."""

    def answered(self) -> None:
        """See `call.Sink.answered`."""
        self.out.clear()


class BatchSink:
    """The sink of the calls of one batch: their answers leave together, when the last one is there."""

    wanted = True

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.out: list[bytes] = []
        self.metadata = NO_METADATA
        self.deadline: Deadline | None = None
        self._size = 0
        self._open = 1  # the batch itself, until all its calls have begun

    def check_size(self, size: int) -> None:
        """See `call.Sink.check_size`; the limit holds for the whole batch."""
        limit = self.connection.limits.max_message_size
        if self._size + size > limit:
            raise ResourceExhausted(f"the answers of this batch are beyond the limit of {limit} bytes together")
        self.connection.hold(size)
        self._size += size

    def suspended(self) -> None:
        """See `call.Sink.suspended`."""
        self._open += 1

    def answered(self) -> None:
        """See `call.Sink.answered`."""
        self._open -= 1
        if self._open == 0 and not self.connection.lost:
            if self.out:
                self.connection.core.send((Kind.BATCH, None, self.out))
            self.connection.release(self._size)
            self.connection.answered()


def _on_call(call_id: Any, payload: Any, sink: Any) -> None:
    key, params, timeout, metadata = payload
    if timeout is not None and timeout <= 0:
        raise DeadlineExceeded("the deadline had passed before the call began")
    call = Call(sink, earliest(None, timeout), metadata or NO_METADATA)
    _run((key, call_id, params), call)


def _on_notification(call_id: Any, payload: Any, sink: Any) -> None:
    key, params, timeout, metadata = payload
    discard = Discard(sink.connection, metadata)
    discard.deadline = earliest(None, timeout)
    _run((key, call_id, params), discard)


def _on_batch(_: Any, events: Any, sink: Any) -> None:
    batch = BatchSink(sink.connection)
    for event in events:
        _run(event, batch)
    batch.answered()


def _run(event: Any, sink: Any) -> None:
    token = current_sink.set(sink)
    try:
        sink.connection.run(event, sink)
    finally:
        current_sink.reset(token)


def _on_result(call_id: int, body: bytes, connection: Any) -> None:
    connection.caller.complete(call_id, body)


def _on_error(call_id: int, body: bytes, connection: Any) -> None:
    connection.caller.refuse(call_id, connection.binding.decode_error(body))


def _on_cancel(call_id: Any, _: Any, connection: Any) -> None:
    connection.cancel(call_id)


def _on_ping(call_id: Any, payload: Any, connection: Any) -> None:
    connection.core.send((Kind.PONG, call_id, payload))


def _on_hello(_: Any, hello: Any, connection: Any) -> None:
    """The peer's settings. A server takes its client's codec before anything after this frame is read."""
    try:
        connection.bind(hello.codec)
    except LookupError as error:
        connection.go_away(ParseError(str(error)))
        connection.hang_up()


def _on_going_away(last_id: Any, body: Any, connection: Any) -> None:
    """The peer takes no new calls: those that it never saw fail now, those that it runs are still answered."""
    connection.leaving = True
    reason = Unavailable("the server is going away") if body is None else body.to_error()
    connection.caller.refuse_after(last_id, reason)


def _on_failed(call_id: Any, error: Any, sink: Any) -> None:
    sink.connection.answer_error(call_id, error, sink)


def _on_invalid(call_id: Any, payload: Any, sink: Any) -> None:
    if call_id is not msgspec.UNSET:
        sink.connection.answer_error(call_id, sink.connection.binding.explain(*payload), sink)


def _on_closed(_: Any, error: Any, connection: Any) -> None:
    logger.info("closing %s: %s", connection.peer, error)
    connection.leaving = True
    connection.caller.fail(error)
    connection.hang_up()


def _ignore(_: Any, __: Any, ___: Any) -> None:
    """A pong, or a notification that cannot be run."""


CONTROL: Final[dict[Any, Any]] = {
    Kind.CALL: _on_call,
    Kind.NOTIFICATION: _on_notification,
    Kind.RESULT: _on_result,
    Kind.ERROR: _on_error,
    Kind.CANCEL: _on_cancel,
    Kind.PING: _on_ping,
    Kind.PONG: _ignore,
    Kind.GOING_AWAY: _on_going_away,
    Kind.HELLO: _on_hello,
    Kind.INVALID: _on_invalid,
    Kind.FAILED: _on_failed,
    Kind.BATCH: _on_batch,
    Kind.IGNORED: _ignore,
    Kind.CLOSED: _on_closed,
}
"""Handlers by kind; they stand in one table with those of procedures."""
