"""Calls that are made over one connection: the futures that wait, and those held back by the peer's limit; floor 3.

All methods run on the loop's thread. The connection gives bytes a way out and a timer; this page owns the waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from copy import copy
from math import inf
from time import monotonic
from typing import Any, Final

import msgspec

from rpcfast.errors import DeadlineExceeded, ParseError, ResourceExhausted, RPCError, Unavailable
from rpcfast.wire.calls import CallTable
from rpcfast.wire.events import Kind

__all__ = ["CallFuture", "Caller", "Request"]

MAX_HELD: Final = 65_536
"""Calls that are held back when the peer's limit of calls in flight is reached."""


class Request(msgspec.Struct, gc=False):
    """One call, encoded: `deadline` is a moment of `time.monotonic()`, `timeout` what the peer is told, in seconds."""

    name: bytes
    body: bytes
    decode: Callable[[bytes], Any]
    deadline: float = inf
    timeout: float | None = None
    metadata: Mapping[str, str] | None = None


class CallFuture(asyncio.Future[Any]):
    """The answer to come. Cancelling it tells the peer that it is no longer wanted."""

    __slots__ = ("caller",)
    caller: Caller

    def cancel(self, msg: Any = None) -> bool:
        """See `asyncio.Future.cancel`."""
        if not super().cancel(msg):
            return False
        self.caller.abandon(self)
        return True


class Caller:
    """The outgoing half of a connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._loop = connection.loop
        self._max_in_flight = connection.max_in_flight
        self.waiting: CallTable[tuple[asyncio.Future[Any], Callable[[bytes], Any]]] = CallTable()
        self.held: CallTable[tuple[asyncio.Future[Any], Request]] = CallTable()
        self.dropped = 0
        """Answers that came for calls which nobody waited for any more."""
        self._ended: RPCError | None = None  # why no new calls are taken

    def __len__(self) -> int:
        return len(self.waiting) + len(self.held)

    @property
    def next_expiry(self) -> float:
        """No call expires before this moment."""
        return min(self.waiting.next_expiry, self.held.next_expiry)

    def call(self, request: Request, future: asyncio.Future[Any] | None = None) -> asyncio.Future[Any]:
        """Queue a call. Its decoded answer, or its `RPCError`, comes in the future; cancelling that cancels the call.

        A coroutine that waits itself may bring a plain `future`, which tasks await in half the time, and must then call
        `abandon` when it is cancelled. Raises `ResourceExhausted` when `MAX_HELD` calls are held back already,
        `ValueError` for a name or metadata that no frame takes, and why the connection takes no new calls, if so.
        """
        if self._connection.leaving:
            raise copy(self._ended) if self._ended is not None else Unavailable("the connection takes no new calls")
        if future is None:
            future = CallFuture(loop=self._loop)
            future.caller = self
        if len(self.waiting) < self._max_in_flight:
            self._start(future, request)
        elif len(self.held) < MAX_HELD:
            if self.held.add(self.held.new_id(), (future, request), request.deadline):
                self._connection.set_timer()
        else:
            raise ResourceExhausted(f"{MAX_HELD} calls wait for this connection already")
        return future

    def notify(self, request: Request) -> None:
        """Queue a notification: no answer comes."""
        payload = (request.name, request.body, request.timeout, request.metadata)
        self._connection.core.send((Kind.NOTIFICATION, 0, payload))
        self._connection.answered()

    def _start(self, future: asyncio.Future[Any], request: Request) -> None:
        connection, waiting, deadline = self._connection, self.waiting, request.deadline
        call_id = waiting.last_id + 1
        name, body, timeout, metadata = request.name, request.body, request.timeout, request.metadata
        if timeout is None and metadata is None:
            connection.core.send_call(call_id, name, body)
        else:
            connection.core.send((Kind.CALL, call_id, (name, body, timeout, metadata)))
        waiting.last_id = call_id
        waiting[call_id] = (deadline, (future, request.decode))
        if deadline < waiting.next_expiry:
            waiting.next_expiry = deadline
            connection.set_timer()
        connection.answered()

    def _release(self) -> None:
        """Start what was held back, oldest first."""
        while self.held and len(self.waiting) < self._max_in_flight and not self._connection.leaving:
            future, request = self.held.take_first()
            if not future.done():
                if request.timeout is not None:  # what is left of it
                    request.timeout = min(request.timeout, request.deadline - monotonic())
                try:
                    self._start(future, request)
                except (ValueError, ResourceExhausted) as error:  # what no frame takes, or not the peer
                    future.set_exception(error)

    def complete(self, call_id: int, body: bytes) -> None:
        """A result came."""
        entry = self.waiting.pop(call_id, None)
        if entry is None or entry[1][0].done():
            self.dropped += 1
        else:
            future, decode = entry[1]
            try:
                future.set_result(decode(body))
            except Exception as error:  # noqa: BLE001  # the decoder of a codec or of a registered type may raise anything
                future.set_exception(ParseError(f"the result cannot be read as what was asked for: {error}"))
        if self.held:
            self._release()

    def refuse(self, call_id: int, error: RPCError) -> None:
        """An error came."""
        entry = self.waiting.take(call_id)
        if entry is None or entry[0].done():
            self.dropped += 1
        else:
            entry[0].set_exception(error)
        if self.held:
            self._release()

    def forget(self, call_id: int) -> None:
        """Tell the peer that an answer is no longer wanted; ids that are not waited for are ignored."""
        if self.waiting.take(call_id) is not None and not self._connection.lost:
            self._connection.core.send((Kind.CANCEL, call_id, b""))
            self._connection.answered()
            self._release()

    def abandon(self, future: asyncio.Future[Any]) -> None:
        """Forget the call whose answer would come in `future`. Looks for it: calls pay nothing for those cancelled."""
        for table in (self.waiting, self.held):
            for call_id, (_, entry) in table.items():
                if entry[0] is future:
                    if table is self.held:
                        table.take(call_id)
                    else:
                        self.forget(call_id)
                    return

    def expire(self, now: float) -> None:
        """Fail every call whose deadline is `now` or past."""
        error = "no answer came before the deadline"
        for call_id, (future, _) in self.waiting.expired(now):
            _settle(future, DeadlineExceeded(error))
            self.forget(call_id)
        for key, (future, _) in self.held.expired(now):
            self.held.take(key)
            _settle(future, DeadlineExceeded(error))

    def refuse_after(self, last_id: int, error: RPCError) -> None:
        """The peer will not look at calls with an id beyond `last_id`, nor at those held back."""
        self._ended = self._ended or error
        for call_id, _ in self.waiting.in_order():
            if call_id > last_id and (entry := self.waiting.take(call_id)) is not None:
                _settle(entry[0], error)
        for _, (future, _) in self.held.drain():
            _settle(future, error)

    def close(self, error: RPCError) -> None:
        """Fail every call, and tell the peer that their answers are no longer wanted: an end alone does not say so."""
        for call_id in self.waiting:
            self._connection.core.send((Kind.CANCEL, call_id, b""))
        self.fail(error)

    def fail(self, error: RPCError) -> None:
        """Fail every call."""
        self.refuse_after(-1, error)


def _settle(future: asyncio.Future[Any], error: RPCError) -> None:
    if not future.done():
        future.set_exception(copy(error))  # each caller raises, and adds its traceback to, one of its own
