"""One peer: a core, the tables of calls in flight, and an asyncio transport; floor 4: knows no protocol by name.

Everything that arrived in one read is dispatched before anything is written; the answers leave in one write. All calls
happen on the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from inspect import CORO_CREATED, getcoroutinestate
from math import inf
from time import monotonic
from typing import Any, Final, cast

from rpcfast.call import NO_METADATA, Deadline, Peer, current_sink
from rpcfast.caller import Caller
from rpcfast.control import CONTROL
from rpcfast.errors import (
    Cancelled,
    DeadlineExceeded,
    ErrorBody,
    InternalError,
    MethodNotFound,
    ResourceExhausted,
    RPCError,
    Unavailable,
)
from rpcfast.limits import Limits
from rpcfast.service import Binding
from rpcfast.wire.calls import CallTable
from rpcfast.wire.events import Event, Kind

__all__ = ["Connection"]

logger = logging.getLogger("rpcfast")

EVENTS_PER_WRITE: Final = 1024
"""Events dispatched before their answers are written, so that many small answers cannot pile up."""
MAX_UNREAD: Final = 1024 * 1024
"""Bytes of answers beyond the largest message that a peer may leave unread."""
LINGER: Final = 1.0
"""Seconds that a peer which is hung up on may go on sending."""
CLOCK_GRAIN: Final = 0.001
"""A timer may fire up to a millisecond early: uvloop's clock has that grain."""
_CANCELLED: Final = Cancelled("the call was cancelled")


class Connection(asyncio.Protocol):
    """One side of a connection, server's or client's. Also the `call.Sink` of calls that carry only parameters.

    `on_close(connection)` hears once that it is gone. `rebind(codec)` gives the binding for the codec that the peer
    asks for, or raises `LookupError`. `only_calls` is the client's side: answers arrive, and are read whatever happens.
    """

    # What a sink has, the same for every call that carries nothing but parameters.
    wanted = True
    metadata: Mapping[str, str] = NO_METADATA
    deadline: Deadline | None = None
    identity: str | None = None

    def __init__(
        self,
        core: Any,
        binding: Binding,
        limits: Limits,
        *,
        on_close: Callable[[Connection], None],
        rebind: Callable[[str], Binding] | None = None,
        only_calls: bool = False,
    ) -> None:
        self.core = core
        self.out: list[bytes] = core.out
        self.binding = binding
        self.limits = limits
        self.max_in_flight = limits.max_in_flight
        self.peer = Peer(binding.protocol, "")
        self.lost = False
        self.leaving = False
        """The peer, or this side, takes no new calls here."""
        self.loop = asyncio.get_running_loop()
        self.running: CallTable[asyncio.Task[None]] = CallTable()
        self.caller = Caller(self)
        self.transport: Any = None
        self.connection = self
        self._handlers = _with_control(binding)
        self._on_close = on_close
        self._rebind = rebind
        self._only_calls = only_calls
        self._events: Iterator[Event] = iter(())
        self._backlog: list[Event] = []
        self._queued = 0  # bytes of large answers since the last write
        self._unread = 0  # bytes that the peer had not taken when its reading was last looked at
        self._held = 0  # bytes of answers in batches that are not complete
        self._paused = False
        self._flushing = False
        self._eof = False
        self._hung_up = False
        self._reasons: dict[Any, RPCError | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self.reads = 0
        """Times that bytes arrived."""
        self._seen = (0, monotonic())
        self._begun = (monotonic(), self._events)  # when the message that waits began, and the events before it
        self._stalled = (monotonic(), 0)  # since when this many bytes are unread

    def __repr__(self) -> str:
        state = "lost" if self.lost else "leaving" if self.leaving else "open"
        return (
            f"<Connection {state} {self.peer.protocol} {self.peer.address}, {len(self.running)} running, "
            f"{len(self.caller)} waited for>"
        )

    # ---- asyncio.Protocol

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol.connection_made`; the client's opening bytes leave here."""
        self.transport = transport
        self.peer = Peer(self.binding.protocol, address_of(transport))
        transport.set_write_buffer_limits(high=self.limits.write_high_water)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol.data_received`. The hot path: one loop and one write, nothing else for plain calls."""
        self.reads += 1
        if current_sink.get() is not self:
            current_sink.set(self)  # in the context that this connection's reads run in; handlers' tasks copy it
        core = self.core
        core.receive_data(data)
        events = core.next_events()
        if events:
            if len(events) > EVENTS_PER_WRITE or self._paused or self._backlog:
                self._dispatch(events)
            else:
                self._run_all(events)
                if self._backlog:
                    self._dispatch([])
        out = self.out
        if out:  # flush(), unrolled
            answers = b"".join(out)
            out.clear()
            self._queued = 0
            if not self.lost and not self._hung_up:
                self.transport.write(answers)

    def eof_received(self) -> bool:
        """See `asyncio.Protocol.eof_received`. A peer that only stopped sending still gets its answers."""
        self._eof = True
        self.core.receive_eof()
        self._dispatch(self.core.next_events())
        self.flush()
        self._close_if_done()
        self._ping_silent_peer()
        return True

    def _ping_silent_peer(self) -> None:
        """Find out whether a peer that stopped sending is there at all: only writing tells, and the second time."""
        if self._eof and not self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self.core.send((Kind.PING, 0, b""))
            self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol.connection_lost`. Calls waited for fail, `Unavailable`; running ones are cancelled."""
        self.lost = self.leaving = True
        self._backlog.clear()
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        reason = f": {exc}" if exc else ""
        self.caller.fail(Unavailable(f"the connection was lost before the answer came{reason}"))
        self.cancel_all()
        self._on_close(self)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol.pause_writing`: a peer that does not read is not read from, and is cut in the end."""
        if not self._only_calls:  # a caller that stopped reading too would stop both sides for good
            self._paused = True
            if not self._eof:
                self.transport.pause_reading()
        self._watch_reader()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol.resume_writing`."""
        self._paused = False
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self._dispatch([])
        self.flush()
        if not self._paused and not self.lost:
            if not self._eof:
                self.transport.resume_reading()
            self._close_if_done()

    def _watch_reader(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.limits.write_timeout, self._check_reader)

    def _check_reader(self) -> None:
        """Cut a peer that took less than `write_high_water` in a whole `write_timeout`: one that is slow may go on."""
        if self._unread - self.transport.get_write_buffer_size() < self.limits.write_high_water:
            self._cut()
        else:
            self._watch_reader()

    def _cut(self) -> None:
        logger.warning("%s does not read its answers and was cut off", self.peer)
        self.transport.abort()

    # ---- what arrived

    def _dispatch(self, events: list[Event]) -> None:
        """Run what waits, and `events` after it, as far as the peer reads its answers."""
        if current_sink.get() is not self:
            current_sink.set(self)  # this may run in the context of whatever wrote last, another call's
        self._backlog += events
        while self._backlog and not self._paused and not self.lost:
            backlog = self._backlog
            self._backlog = backlog[EVENTS_PER_WRITE:]
            self._run_all(backlog[:EVENTS_PER_WRITE])
            self.flush()

    def _run_all(self, events: list[Event]) -> None:
        """The hot loop. It ends early when a handler takes what is left of `_events`: see `_stop_dispatch`."""
        handlers = self._handlers.get
        self._events = iterator = iter(events)
        for key, call_id, payload in iterator:
            handler = handlers(key, _unknown)
            try:
                handler(call_id, payload, self)
            except BaseException as error:  # noqa: BLE001  # SystemExit in a handler must not end the server
                self._failed_event(key, call_id, error, self)

    def run(self, event: Event, sink: Any) -> None:
        """Run one event whose answer goes to `sink`."""
        key, call_id, payload = event
        try:
            self._handlers.get(key, _unknown)(call_id, payload, sink)
        except BaseException as error:  # noqa: BLE001  # as in _run_all
            self._failed_event(key, call_id, error, sink)

    def _failed_event(self, key: Any, call_id: Any, error: BaseException, sink: Any) -> None:
        if error is _UNKNOWN and self._handlers is CONTROL:
            error = Unavailable("the server is going away and takes no new calls")
        elif error is _UNKNOWN:
            name = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
            error = MethodNotFound(f"no procedure is named {name[:64]!r}")
        self.failed(self.binding.names.get(key, ""), call_id, error, sink)

    def _stop_dispatch(self) -> None:
        """Leave the events that remain of this read for after the next write: the loop finds its iterator empty."""
        self._backlog = [*self._events, *self._backlog]

    # ---- the sink's side: answers

    def check_size(self, size: int) -> None:
        """See `call.Sink.check_size`. Large answers are written before more calls are run."""
        limit = self.limits.max_message_size
        if size > limit:
            raise ResourceExhausted(
                f"the answer of {size} bytes is beyond the limit of {limit}; raise max_message_size"
            )
        self._queued += size
        if self._queued > self.limits.write_high_water or self._paused or self._held:
            self._stop_dispatch()
            try:
                self._check_room(0)
            except ResourceExhausted:
                self._queued -= size
                raise

    def hold(self, size: int) -> None:
        """An answer of `size` bytes waits for the rest of its batch; raises `ResourceExhausted` when too many do."""
        self._check_room(size)
        self._held += size

    def release(self, size: int) -> None:
        """A batch whose answers were held is queued."""
        self._held -= size
        self._queued += size
        if self._queued > self.limits.write_high_water:
            self._stop_dispatch()

    def _check_room(self, size: int) -> None:
        """What a peer makes this side keep is bounded by the largest message, and a little more."""
        unread = self._queued + self._held + self.transport.get_write_buffer_size()
        limit = self.limits.max_message_size + MAX_UNREAD
        if unread + size > limit:
            raise ResourceExhausted(f"{unread} bytes of answers wait to be read or completed; the limit is {limit}")

    def suspended(self) -> None:
        """See `call.Sink.suspended`."""

    def answered(self) -> None:
        """See `call.Sink.answered`: one write for all that is queued in this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush_late)

    def failed(self, name: str, call_id: Any, error: BaseException, sink: Any, key: Any = None) -> None:
        """Answer an exception: an `RPCError` as it is; anything else is logged with its traceback and never travels."""
        if isinstance(error, asyncio.CancelledError) and key is not None:
            reason = self._reasons.get(key, _CANCELLED)
            if reason is None:
                return  # nobody waits any more
            error = reason
        elif not isinstance(error, RPCError):
            logger.error("%s failed", name or "a call", exc_info=error)
            error = InternalError(f"{name or 'the call'} failed; the server's log says why")
        self.answer_error(call_id, error, sink)

    def answer_error(self, call_id: Any, error: RPCError, sink: Any) -> None:
        """Queue the answer that carries `error`, if an answer is wanted."""
        if sink.wanted:
            self.binding.answer_error(sink, call_id, error)

    def flush(self) -> None:
        """Write everything queued, at once."""
        out = self.out
        if out:
            # join and write, not writelines: some stdlib loops forget flow control in writelines (CVE-2024-12254).
            data = b"".join(out)
            out.clear()
            self._queued = 0
            if not self.lost and not self._hung_up:
                self.transport.write(data)

    def _flush_late(self) -> None:
        self._flushing = False
        if self._write_timer is not None:
            self._unread += sum(map(len, self.out))
        self.flush()
        self._close_if_done()

    # ---- calls that run here

    def suspend(self, key: Any, task: asyncio.Task[None], sink: Any) -> None:
        """Enter a call that did not end in its first step."""
        sink.suspended()
        deadline = sink.deadline
        if self.running.add(key, task, inf if deadline is None else deadline.at):
            self.set_timer()

    def cancel(self, key: Any) -> None:
        """Cancel a running call that nobody waits for any more; unknown keys are ignored."""
        task = self.running.waiting(key)
        if task is not None:
            self._interrupt(key, task, None)

    def _interrupt(self, key: Any, task: asyncio.Task[None], reason: RPCError | None) -> None:
        """Cancel a call once: a second cancellation would interrupt its clean-up."""
        if key in self._reasons:
            return
        self._reasons[key] = reason
        task.add_done_callback(lambda _: self._reasons.pop(key, None))  # the handler may have ended in another way
        if getcoroutinestate(cast("Coroutine[Any, Any, None]", task.get_coro())) == CORO_CREATED:
            self.loop.call_soon(task.cancel)  # Python 3.11: begun first, so that what leaves the table runs
        else:
            task.cancel()

    def linger(self, future: asyncio.Future[Any]) -> None:
        """A thread runs on though its call was cancelled: until it ends, it uses a place of this connection."""
        self.max_in_flight -= 1
        future.add_done_callback(self._lingered)

    def _lingered(self, _: Any) -> None:
        self.max_in_flight += 1

    def finished(self, sink: Any) -> None:
        """A suspended call has queued its answer, or needs none."""
        sink.answered()

    def set_timer(self) -> None:
        """Wake up when the next call expires, running here or waited for: one timer, whatever their number."""
        expiry = min(self.running.next_expiry, self.caller.next_expiry)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if expiry < inf:
            self._timer = self.loop.call_later(max(0.0, expiry - monotonic()), self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = monotonic() + CLOCK_GRAIN
        for key, task in self.running.expired(now):
            self._interrupt(key, task, DeadlineExceeded("the deadline passed before the call was done"))
        self.caller.expire(now)
        self.set_timer()

    # ---- the life of a connection

    @property
    def busy(self) -> bool:
        """Whether a call runs here or is waited for, or an answer is not written yet."""
        return bool(len(self.running) or len(self.caller) or self._backlog or self.transport.get_write_buffer_size())

    def bind(self, codec: str) -> None:
        """Take the codec that the peer chose, before anything that follows is read; raises `LookupError`."""
        if self._rebind is not None:
            self._stop_dispatch()
            self.binding = self._rebind(codec)
            self._handlers = _with_control(self.binding)

    def go_away(self, error: RPCError | None = None) -> None:
        """Take no new calls here from now on, and say so. Those that run are still answered."""
        if self._handlers is not CONTROL and not self.lost:
            self.leaving = True
            self._handlers = CONTROL
            last_id = getattr(self.core, "last_id", 0)
            self.core.send((Kind.GOING_AWAY, last_id, None if error is None else ErrorBody.of(error)))
            self.flush()

    def close(self) -> None:
        """Write what is queued, then close. What arrived and did not run yet is not run."""
        if not self.lost:
            self._stop_dispatch()
            self._backlog.clear()
            self.flush()
            self.transport.close()

    def hang_up(self) -> None:
        """Close after a last word to a peer that may still be sending: what comes is thrown away for a while.

        A socket that is closed with bytes unread is reset, and the reset can overtake the last word (RFC 9112, 9.6).
        """
        if self.lost or self._hung_up:
            return
        self._stop_dispatch()
        self._backlog.clear()
        self.flush()
        if self._eof or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._hung_up = True
        self.core = Deaf()
        self.transport.write_eof()
        self.transport.resume_reading()
        self.loop.call_later(LINGER, self.transport.close)

    def abort(self) -> None:
        """Close at once; what is queued is lost."""
        if not self.lost:
            self.transport.abort()

    def cancel_all(self) -> list[asyncio.Task[None]]:
        """Cancel every running call; gives their tasks."""
        tasks = [task for _, task in self.running.in_order()]
        for key, _ in self.running.in_order():
            self.cancel(key)
        return tasks

    def _close_if_done(self) -> None:
        if self._eof and not self.lost and not (len(self.running) or self._backlog):
            self.close()

    def tick(self, now: float) -> None:
        """Called about once a second: closes a connection that is idle, or does not read, or does not end a message."""
        reads, since = self._seen
        if self.reads != reads or self.busy:
            self._seen = (self.reads, now)
        elif now - since > self.limits.idle_timeout and not self.core.waiting:
            self.go_away(Unavailable(f"idle for {self.limits.idle_timeout:g} s"))
            self.hang_up()
            return
        self._check_message(now)
        self._check_unread(now)
        self._ping_silent_peer()

    def _check_message(self, now: float) -> None:
        """Close a connection whose message neither arrives in time nor faster than `min_rate`."""
        waiting = 0 if self._paused else self.core.waiting
        since, before = self._begun
        if not waiting or before is not self._events:  # events came: what waits is another message
            self._begun = (now, self._events)
            return
        seconds = now - since
        if seconds > self.limits.frame_timeout and waiting < self.limits.min_rate * seconds:
            self.go_away(DeadlineExceeded(f"a message did not arrive whole within {self.limits.frame_timeout:g} s"))
            self.hang_up()

    def _check_unread(self, now: float) -> None:
        """Cut a peer that takes nothing at all, also where so little waits that writing is not paused."""
        since, unread = self._stalled
        size = self.transport.get_write_buffer_size()
        if size != unread or not size:
            self._stalled = (now, size)
        elif now - since > self.limits.write_timeout:
            self._cut()


class Deaf:
    """The core of a connection that has said its last word."""

    waiting = 0

    def receive_data(self, data: bytes) -> None:
        """See `events.Core.receive_data`: thrown away."""

    def receive_eof(self) -> None:
        """See `events.Core.receive_eof`."""

    def next_events(self) -> list[Event]:
        """See `events.Core.next_events`: none."""
        return []

    def send(self, event: Event) -> None:
        """See `events.Core.send`: too late."""


_UNKNOWN: Final = MethodNotFound("no such procedure")


def _unknown(_: Any, __: Any, ___: Any) -> None:
    """What stands for a procedure that there is not."""
    raise _UNKNOWN


def _with_control(binding: Binding) -> dict[Any, Any]:
    """One table for everything that arrives: procedures by key, other events by kind."""
    if Kind.CALL not in binding.handlers:
        binding.handlers.update(CONTROL)
    return binding.handlers


def address_of(transport: Any) -> str:
    """The peer's address as people write it."""
    name: tuple[Any, ...] | str | None = transport.get_extra_info("peername")
    if isinstance(name, tuple):
        host, port = str(name[0]), int(name[1])
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return name if isinstance(name, str) else ""
