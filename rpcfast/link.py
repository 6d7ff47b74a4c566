"""One blocking connection that threads share, from its dialling to its end; floor 6: no event loop, dials nothing.

The thread that calls sends, and reads until its answer is there: no other thread is woken for a call. When several
call at once, one of them reads for all; when it has its own answer it hands the reading on. Nothing that may block is
done under `Link._lock`, so that a deadline holds whatever the other threads do.
"""

from __future__ import annotations

import copy
import select
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from math import inf
from time import monotonic
from typing import Any, Final

from rpcfast.caller import Request
from rpcfast.errors import DeadlineExceeded, RPCError, Unavailable
from rpcfast.transport.pipes import reap
from rpcfast.wire.events import Kind
from rpcfast.wire.native import NativeCore

__all__ = ["Link", "Waiter", "acquire"]

RECEIVE_SIZE: Final = 64 * 1024
MAX_PATIENCE: Final = 3600.0
"""Seconds that one read, or one wait for a turn, lasts at most; a longer deadline takes several."""
IDLE: Final = 1.0
"""Seconds after which a connection is looked at before it is used: the server may have closed it."""
SHORT: Final = 16 * 1024
"""Bytes of a body that fits into the socket's buffer as a rule."""
LAST_STEP: Final = 0.01
GLANCE: Final = 0.1
"""Seconds after which a thread that waits for room to send looks whether it is its turn to read."""
MAX_UNSENT: Final = 64 * 1024
"""Bytes of pongs and cancellations that a peer may leave unread before it is given up."""

_LATE: Final = "no answer came before the deadline"


class Waiter:
    """A call in flight. Defaults stand in the class: most calls change two of them."""

    call_id = 0
    done = False
    answer: bytes = b""
    error: RPCError | None = None
    reads = False
    """It is this one's turn to read for all."""
    woken: Any = None
    """A lock that is held until something changed; made only when another thread reads."""

    def settle(self, answer: bytes, error: RPCError | None) -> None:
        """Give it what it waits for. Errors are copied: each thread raises one of its own."""
        self.answer, self.error, self.done = answer, copy.copy(error), True
        self.wake()

    def wake(self) -> None:
        """Let its thread look at what changed."""
        if self.woken is not None:
            with suppress(RuntimeError):  # released already
                self.woken.release()

    def wait(self, deadline: float) -> None:
        """Wait for `wake`; raises `DeadlineExceeded`."""
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise DeadlineExceeded(_LATE)
        self.woken.acquire(timeout=min(remaining, MAX_PATIENCE))


class Link:
    """One connection, from its dialling to its end; a line has a new one after it was lost. Threads share it.

    Two locks: `_lock` guards what is known (calls, who reads), and is never held while anything blocks; `_sending` is
    held by the thread that writes.
    """

    def __init__(
        self,
        sock: socket.socket,
        child: subprocess.Popen[bytes] | None,
        core: NativeCore,
        decode_error: Callable[[bytes], RPCError],
        name: str,
        *,
        on_end: Callable[[Link], None],
    ) -> None:
        self.used = monotonic()
        self.leaving = False
        """Takes no new calls: lost, or the server said so."""
        self.closed = False
        self.calls: dict[int, Waiter] = {}
        self._sock = sock
        self._child = child
        self._core = core
        self._decode_error = decode_error
        self._name = name
        self._on_end = on_end
        self._last_id = 0
        self._users = 0  # threads inside: the socket is closed when none is left, so that its number is not used again
        self._lost: RPCError | None = None
        """Why it ended."""
        self._reading = False
        self._patience = inf  # what the socket's own timeout is set to
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._arrivals: Iterator[bytes] = map(sock.recv, repeat(RECEIVE_SIZE))

    # ---- a call

    def call_alone(self, request: Request, waiter: Waiter) -> bool:
        """A whole plain call while no other thread is here: `start`, `wait` and `finish` in one, as the hot path.

        False: it cannot be made so, and nothing was sent. A send that cannot block is done under the lock.
        """
        now, body, core, begun = monotonic(), request.body, self._core, False
        if now - self.used > IDLE or len(body) > SHORT or request.timeout is not None or request.metadata is not None:
            return False
        try:
            with self._lock:
                if self._users or self.leaving or core.out or request.deadline <= now or self._sending.locked():
                    return False
                call_id = self._last_id + 1
                core.send_call(call_id, request.name, body)
                begun = True
                self._users, self._reading, waiter.reads, self.used = 1, True, True, now
                self._last_id = waiter.call_id = call_id
                self.calls[call_id] = waiter
                sent = self._send_queued()
            if sent and core.out:
                self._send_remainder(request.deadline, waiter)
            while sent and not waiter.done:
                self._read(waiter, request.deadline)
        finally:
            if begun:
                self.finish(waiter)
        return sent

    def _send_queued(self) -> bool:
        """Send the one call that is queued; what does not fit stays. False: nothing was sent. The lock is held."""
        out = self._core.out
        try:
            sent = self._sock.send(out[0], socket.MSG_DONTWAIT)
        except OSError:  # full, or lost: `start` will find out
            out.clear()
            self.calls.clear()
            return False
        data = out.pop()
        if sent < len(data):
            out.append(data[sent:])
        return True

    def _send_remainder(self, deadline: float, waiter: Waiter) -> None:
        try:
            acquire(self._sending, deadline)
            try:
                with self._lock:
                    frames = self._core.data_to_send()
                taken = self._write(frames, deadline, waiter)
            finally:
                self._sending.release()
        except BaseException:
            self.lose(self._lost_error("was given up: a call could not be sent whole"))
            raise
        if not taken:
            raise self._lost_error("was lost while sending")

    def start(self, request: Request, waiter: Waiter, kind: int) -> bool:
        """Send a call or notification; `finish` must follow. False: nothing was taken, and it must not.

        Raises `DeadlineExceeded` or `Unavailable` when it cannot be sent, `ValueError` for a name or metadata that no
        frame takes.
        """
        entered = False
        try:
            acquire(self._sending, request.deadline)
            try:
                with self._lock:
                    if self.leaving:
                        return False
                    self._queue(request, waiter, kind)
                    self._users += 1
                    entered = True
                    frames = self._core.data_to_send()
                taken = self._write(frames, request.deadline, waiter)
            finally:
                self._sending.release()
        except BaseException:
            if entered:
                self.finish(waiter)
            raise
        if not taken:
            self.finish(waiter)
        elif self._core.out:
            self._write_small()
        return taken

    def _queue(self, request: Request, waiter: Waiter, kind: int) -> None:
        core, call_id = self._core, self._last_id + 1
        if kind != Kind.CALL:
            core.send((kind, 0, (request.name, request.body, None, request.metadata)))
            return
        if request.timeout is None and request.metadata is None:
            core.send_call(call_id, request.name, request.body)
        else:
            core.send((kind, call_id, (request.name, request.body, request.timeout, request.metadata)))
        self._last_id = waiter.call_id = call_id
        self.calls[call_id] = waiter

    def wait(self, waiter: Waiter, deadline: float) -> None:
        """Read, or wait for the thread that reads, until the answer is there; raises `DeadlineExceeded`."""
        with self._lock:
            if not self._reading:
                self._reading = waiter.reads = True
            elif not waiter.reads:
                waiter.woken = threading.Lock()
                waiter.woken.acquire()
        while not waiter.done:
            if waiter.reads:
                self._read(waiter, deadline)
            else:
                waiter.wait(deadline)

    def finish(self, waiter: Waiter) -> None:
        """The thread is done here, however it went: tell the server if it waits no longer; let another read."""
        with self._lock:
            unfinished = self.calls.pop(waiter.call_id, None) is not None and not waiter.done
            if unfinished:
                self._core.send((Kind.CANCEL, waiter.call_id, b""))
            if waiter.reads:
                waiter.reads = False
                self._hand_on()
            self._users -= 1
            if not self._users and self.leaving:
                self._end()
        if unfinished:
            self._write_small()

    def _hand_on(self) -> None:
        """Stop reading for all; the oldest that waits takes over. The lock is held."""
        self._reading = False
        for other in self.calls.values():
            other.reads = self._reading = True
            other.wake()
            return

    # ---- reading; by one thread at a time

    def _read(self, waiter: Waiter, deadline: float) -> None:
        """Read once for all. An interrupt while nothing has come yet costs the other threads nothing."""
        self._set_patience(deadline)
        data = None
        try:
            for data in self._arrivals:  # noqa: B007  # no interrupt gets between recv and `data`, as it could at a call
                break
            if data is not None:
                answer = self._core.take_sole_result(data, waiter.call_id)
                if answer is None:
                    self._received(data)
                else:
                    waiter.answer, waiter.done = answer, True
        except BlockingIOError:  # the socket's own timeout
            return
        except OSError as error:
            self.lose(self._lost_error("was lost before the answer came", error))
        except BaseException:
            if data is not None:
                self.lose(self._lost_error("was given up: a read was interrupted"))
            raise

    def _set_patience(self, deadline: float) -> None:
        """How long a read may block: a socket option, set when it must change, so that a read stays one system call.

        It is never longer than what remains, and mostly a little shorter, so that the next call need not set it again.
        """
        remaining = deadline - monotonic()
        if self._patience <= remaining <= self._patience * 2:
            return
        if remaining <= 0:
            raise DeadlineExceeded(_LATE)
        if remaining > LAST_STEP:
            remaining *= 0.9
        self._patience = inf if deadline == inf else min(remaining, MAX_PATIENCE)
        with suppress(OSError):  # it was lost: the read will say so
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(self._patience))

    def _received(self, data: bytes) -> None:
        if not data:
            self.lose(self._lost_error("was lost before the answer came"))
            return
        core = self._core
        core.receive_data(data)
        for kind, call_id, payload in core.next_events():
            if kind == Kind.RESULT:
                self._settle(call_id, payload, None)
            elif kind == Kind.ERROR:
                self._settle(call_id, b"", self._decode_error(payload))
            elif kind == Kind.PING:
                with self._lock:
                    core.send((Kind.PONG, call_id, payload))
                self._write_small()
            elif kind == Kind.GOING_AWAY:
                self._go(call_id, payload.to_error() if payload else Unavailable("the server is going away"))
            elif kind == Kind.CLOSED:
                self.lose(payload)

    def _settle(self, call_id: int, answer: bytes, error: RPCError | None) -> None:
        with self._lock:
            waiter = self.calls.pop(call_id, None)
        if waiter is not None:
            waiter.settle(answer, error)

    def _go(self, last_id: int, error: RPCError) -> None:
        """The server takes no new calls, and did not look at those beyond `last_id`."""
        with self._lock:
            self.leaving = True
            refused = [self.calls.pop(call_id) for call_id in list(self.calls) if call_id > last_id]
        for waiter in refused:
            waiter.settle(b"", error)

    def look(self) -> None:
        """Take what came while nobody read, such as the news that the server is gone."""
        waiter = Waiter()
        with self._lock:
            if self._reading or self.leaving:
                return
            self._reading = waiter.reads = True
            self._users += 1
        try:
            while self._glance():
                pass
        finally:
            self.finish(waiter)

    def _glance(self) -> bool:
        """Take what is there, without waiting; by the thread whose turn it is to read. False: no more comes."""
        try:
            self._received(self._sock.recv(RECEIVE_SIZE, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False
        except OSError as error:
            self.lose(self._lost_error("was lost", error))
        except BaseException:
            self.lose(self._lost_error("was given up: a read was interrupted"))
            raise
        return not self.leaving

    # ---- writing; `_sending` is held

    def _write(self, frames: Sequence[bytes], deadline: float, waiter: Waiter) -> bool:
        """Send all that is queued, the call last. Cut short, it ends the connection; a call not begun is taken back.

        False: the connection turned out to be lost before a byte was sent.
        """
        data = b"".join(frames)
        sent = 0
        try:
            sent = self._send(data)
            if sent < len(data):
                sent += self._send_rest(memoryview(data)[sent:], deadline, waiter)
        except BaseException as error:
            if isinstance(error, OSError) and not sent:
                with self._lock:
                    self.calls.pop(waiter.call_id, None)
            self.lose(self._lost_error("was lost while sending", error))
            if not isinstance(error, OSError):
                raise
            if not sent:
                return False
        if self._lost:
            raise copy.copy(self._lost)
        if sent < len(data):
            if sent:
                self.lose(self._lost_error("was given up: a call could not be sent whole"))
            else:
                with self._lock:
                    self._core.out[:0] = frames[:-1]
            raise DeadlineExceeded("the call could not be sent before the deadline")
        return True

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self._sock.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _send_rest(self, data: memoryview, deadline: float, waiter: Waiter) -> int:
        """The socket is full: wait for room. Reads meanwhile when nobody does: the server may wait for that."""
        sent = 0
        while sent < len(data) and not self._lost and (remaining := deadline - monotonic()) > 0:
            with self._lock:
                if not self._reading:
                    self._reading = waiter.reads = True
            poll = select.poll()
            poll.register(self._sock, select.POLLOUT | (select.POLLIN if waiter.reads else 0))
            poll.poll(min(remaining, GLANCE) * 1000)
            if waiter.reads:
                self._glance()
            sent += self._send(data[sent:])
        return sent

    def _write_small(self, patience: float = 0.0) -> None:
        """Send pongs and cancellations if that does not block. What is left over goes first the next time."""
        if sum(map(len, self._core.out)) > MAX_UNSENT:
            self.lose(Unavailable(f"{self._name} does not read what it asks for"))
        if self._lost or not self._sending.acquire(timeout=patience):
            return  # the thread that writes looks again
        try:
            with self._lock:
                data = b"".join(self._core.data_to_send())
            sent = self._send(data)
            if sent < len(data):
                with self._lock:
                    self._core.out.insert(0, data[sent:])
        except OSError as error:
            self.lose(self._lost_error("was lost", error))
        finally:
            self._sending.release()

    # ---- the end

    def close(self, error: RPCError) -> None:
        """End it on purpose: the server hears that calls in flight are not wanted: an end alone does not say so."""
        with self._lock:
            for call_id in self.calls:
                self._core.send((Kind.CANCEL, call_id, b""))
        self._write_small(GLANCE)
        self.lose(error)

    def lose(self, error: RPCError) -> None:
        """End it: all calls fail with `error`. The socket is closed when no thread is inside any more."""
        with self._lock:
            if self._lost:
                return
            self._lost, self.leaving = error, True
            refused = list(self.calls.values())
            self.calls.clear()
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)  # wakes the threads that read or write
            if not self._users:
                self._end()
        for waiter in refused:
            waiter.settle(b"", error)

    def _end(self) -> None:
        self._lost, self.closed = self._lost or self._lost_error("is over: the server is going away"), True
        self._sock.close()
        self._on_end(self)
        if self._child is not None and self._child.poll() is None:
            threading.Thread(target=reap, args=(self._child,), name="rpcfast-reap", daemon=True).start()

    def reap(self) -> None:
        """Wait for the child process, if there is one, to end."""
        if self._child is not None:
            reap(self._child)

    def forget(self) -> None:
        """In the child of a fork: the connection is the parent's. Close our copy without a word on the wire."""
        self._lost, self.closed, self.leaving = self._lost_error("is another process's"), True, True
        self._sock.close()
        if self._child is not None:
            self._child.returncode = 0  # not our child: nothing to wait for

    def _lost_error(self, what: str, error: BaseException | None = None) -> Unavailable:
        reason = "" if error is None else f": {error}"
        return Unavailable(f"the connection to {self._name} {what}{reason}")


def acquire(lock: threading.Lock, deadline: float) -> None:
    """Take a lock that others hold while they wait for the network; raises `DeadlineExceeded`."""
    if lock.acquire(blocking=False):
        return
    while not lock.acquire(timeout=max(0.0, min(deadline - monotonic(), MAX_PATIENCE))):
        if monotonic() >= deadline:
            raise DeadlineExceeded("the deadline passed while another thread connected or sent")


def _timeval(seconds: float) -> bytes:
    """A C `struct timeval`, two longs on Linux and macOS; 0 means for ever there."""
    whole = 0 if seconds == inf else int(seconds)
    return struct.pack("ll", whole, 0 if seconds == inf else max(1, int((seconds - whole) * 1e6)))
