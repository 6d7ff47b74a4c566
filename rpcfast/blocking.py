"""A connection for threads: calls go straight to a blocking socket; floor 6: no event loop.

The thread that calls sends, and reads until its answer is there: no other thread is woken for a call. When several call at once,
one of them reads for all; when it has its own answer it hands the reading on.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import threading
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, Final
from weakref import WeakSet

from rpcfast.caller import Request
from rpcfast.errors import DECODE_ERRORS, DeadlineExceeded, ParseError, RPCError, Unavailable
from rpcfast.service import Binding
from rpcfast.transport.pipes import reap, spawn
from rpcfast.transport.stream import connect_blocking
from rpcfast.transport.target import Target
from rpcfast.wire.calls import CallTable
from rpcfast.wire.events import Kind
from rpcfast.wire.native import Hello, NativeCore

__all__ = ["BlockingLine"]

RECEIVE_SIZE: Final = 64 * 1024
IDLE: Final = 1.0
"""Seconds after which a connection is looked at before it is used: the server may have closed it."""
DIAL_TIMEOUT: Final = 10.0


class Waiter:
    """A call in flight. `woken` is made only when another thread reads."""

    __slots__ = ("answer", "done", "error", "reads", "woken")

    def __init__(self) -> None:
        self.done = False
        self.answer: bytes = b""
        self.error: RPCError | None = None
        self.reads = False
        """It is this one's turn to read for all."""
        self.woken: threading.Event | None = None

    def wake(self) -> None:
        """Let its thread look at what changed."""
        if self.woken is not None:
            self.woken.set()


class BlockingLine:
    """One connection, dialled at the first call and again after it was lost. Safe to share between threads; survives a fork.

    The child of a fork gets a connection of its own; the parent's is left alone.
    """

    def __init__(self, target: Target, binding: Binding, hello: Hello) -> None:
        self.target = target
        self._binding = binding
        self._hello = hello
        self._closed = False
        self._reset()
        _lines.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._core = NativeCore(client=True, hello=self._hello)
        self._calls: CallTable[Waiter] = CallTable()
        self._reading = False
        self._leaving = False
        self._used = 0.0
        self._patience: float | None = None  # what the socket's own timeout is set to

    def __repr__(self) -> str:
        state = "closed" if self._closed else "connected" if self._socket else "not connected"
        return f"<BlockingLine {state} to {self.target}, {len(self._calls)} in flight>"

    # ---- calls

    def call(self, request: Request) -> Any:
        """Make a call and wait for its answer; raises its `RPCError`, `DeadlineExceeded` or `Unavailable`."""
        waiter = Waiter()
        with self._lock:
            now = monotonic()
            self._connect(now, request.deadline)
            call_id = self._calls.new_id()
            self._core.send((Kind.CALL, call_id, (request.name, request.body, request.timeout, request.metadata)))
            self._calls.add(call_id, waiter)
            self._send(request.deadline - now)
            waiter.reads = not self._reading
            if waiter.reads:
                self._reading = True
            else:
                waiter.woken = threading.Event()
        try:
            self._wait(waiter, request.deadline)
        except BaseException:
            self._abandon(call_id, waiter)
            raise
        if waiter.error is not None:
            raise waiter.error
        try:
            return request.decode(waiter.answer)
        except DECODE_ERRORS as error:
            raise ParseError(f"the result cannot be read as what was asked for: {error}") from error

    def notify(self, request: Request) -> None:
        """Send a notification: no answer comes. Raises `Unavailable` when there is no connection."""
        with self._lock:
            now = monotonic()
            self._connect(now, request.deadline)
            self._core.send((Kind.NOTIFICATION, 0, (request.name, request.body, None, request.metadata)))
            self._send(request.deadline - now)

    def close(self) -> None:
        """Close. Calls in flight fail with `Unavailable`. A child process gets 5 seconds to end."""
        with self._lock:
            self._closed = True
            self._lose(Unavailable("the client was closed"))

    # ---- waiting

    def _wait(self, waiter: Waiter, deadline: float) -> None:
        while not waiter.done:
            if waiter.reads:
                self._read(waiter, deadline)
            elif waiter.woken is not None:
                remaining = deadline - monotonic()
                if remaining <= 0:
                    raise DeadlineExceeded("no answer came before the deadline")
                waiter.woken.wait(None if remaining == inf else remaining)
                waiter.woken.clear()

    def _read(self, waiter: Waiter, deadline: float) -> None:
        """Read for all until this one's answer is there, then hand the reading on."""
        sock = self._socket
        while not waiter.done and sock is not None:
            self._set_patience(sock, deadline)
            try:
                data = sock.recv(RECEIVE_SIZE)
            except BlockingIOError:  # the socket's own timeout
                if monotonic() < deadline:
                    continue
                raise DeadlineExceeded("no answer came before the deadline") from None
            except OSError as error:
                data, reason = b"", f": {error}"
            else:
                reason = ""
            with self._lock:
                if sock is self._socket:
                    self._received(data, reason)
        self._hand_on(waiter)

    def _set_patience(self, sock: socket.socket, deadline: float) -> None:
        """How long a read may block: a socket option, set when it changes, so that a read stays one system call."""
        seconds = 0.0 if deadline == inf else max(deadline - monotonic(), 0.001)
        if self._patience is not None and abs(seconds - self._patience) <= self._patience * 0.1:
            return  # nearly the same: what is left over shows when the read returns
        self._patience = seconds
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds))

    def _received(self, data: bytes, reason: str) -> None:
        if not data:
            self._lose(Unavailable(f"the connection to {self.target} was lost before the answer came{reason}"))
            return
        self._core.receive_data(data)
        for kind, call_id, payload in self._core.next_events():
            if kind == Kind.RESULT:
                self._settle(call_id, payload, None)
            elif kind == Kind.ERROR:
                self._settle(call_id, b"", self._binding.decode_error(payload))
            elif kind == Kind.PING:
                self._core.send((Kind.PONG, call_id, payload))
                self._send(DIAL_TIMEOUT)
            elif kind == Kind.GOING_AWAY:
                self._leaving = True
                self._refuse_after(call_id, payload.to_error() if payload else Unavailable("the server is going away"))
            elif kind == Kind.CLOSED:
                self._lose(payload)

    def _settle(self, call_id: int, answer: bytes, error: RPCError | None) -> None:
        waiter = self._calls.take(call_id)
        if waiter is not None:
            waiter.answer, waiter.error, waiter.done = answer, error, True
            waiter.wake()

    def _refuse_after(self, last_id: int, error: RPCError) -> None:
        for call_id, _ in self._calls.in_order():
            if call_id > last_id:
                self._settle(call_id, b"", error)

    def _hand_on(self, waiter: Waiter) -> None:
        """Stop reading for all; another that waits takes over."""
        with self._lock:
            if waiter.reads:
                waiter.reads = self._reading = False
                for _, other in self._calls.in_order():
                    if other is not waiter:
                        other.reads = self._reading = True
                        other.wake()
                        return

    def _abandon(self, call_id: int, waiter: Waiter) -> None:
        """The caller waits no longer: tell the server, let another read."""
        with self._lock:
            unfinished = self._calls.take(call_id) is not None
            if unfinished and self._socket is not None:
                self._core.send((Kind.CANCEL, call_id, b""))
                with suppress(RPCError):
                    self._send(0.0)
        self._hand_on(waiter)

    # ---- the connection; the lock is held

    def _connect(self, now: float, deadline: float) -> None:
        if self._closed:
            raise Unavailable("the client was closed")
        if self._socket is not None and now - self._used > IDLE and not self._reading:
            self._look()
        if self._leaving and not self._calls:
            self._lose(Unavailable("the server is going away"))
        if self._socket is None:
            self._dial(min(DIAL_TIMEOUT, deadline - now))
        self._used = now

    def _dial(self, timeout: float) -> None:
        if timeout <= 0:
            raise DeadlineExceeded("the deadline passed before a connection was there")
        try:
            if self.target.scheme == "exec":
                self._socket, self._child = spawn(self.target.command)
            else:
                self._socket = connect_blocking(self.target, timeout)
        except OSError as error:
            raise Unavailable(unreachable(self.target, error)) from error
        self._socket.settimeout(None)
        self._patience = None
        self._leaving = False
        self._core = NativeCore(client=True, hello=self._hello)
        self._calls.last_id = 0

    def _look(self) -> None:
        """Take what came while nobody read, such as the news that the server is gone."""
        assert self._socket is not None  # noqa: S101  # its only caller has looked
        try:
            data = self._socket.recv(RECEIVE_SIZE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            self._received(b"", f": {error}")
        else:
            self._received(data, "")

    def _send(self, timeout: float) -> None:
        assert self._socket is not None  # noqa: S101  # _connect came before
        data = b"".join(self._core.data_to_send())
        try:
            sent = self._socket.send(data, socket.MSG_DONTWAIT)
            if sent < len(data):
                self._send_rest(memoryview(data)[sent:], timeout)
        except BlockingIOError:
            self._send_rest(memoryview(data), timeout)
        except OSError as error:
            self._lose(Unavailable(f"the connection to {self.target} was lost: {error}"))
            raise Unavailable(f"the connection to {self.target} was lost while sending: {error}") from error

    def _send_rest(self, data: memoryview, timeout: float) -> None:
        """The socket is full: wait for room, at most `timeout`. A message cut short ends the connection."""
        assert self._socket is not None  # noqa: S101
        try:
            self._socket.settimeout(None if timeout == inf else max(timeout, 0.001))
            self._socket.sendall(data)
            self._socket.settimeout(None)
        except OSError as error:
            self._lose(Unavailable(f"the connection to {self.target} was lost: a call could not be sent whole"))
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded("the call could not be sent before the deadline") from error
            raise Unavailable(f"the connection to {self.target} was lost while sending: {error}") from error

    def _lose(self, error: RPCError) -> None:
        sock, self._socket = self._socket, None
        child, self._child = self._child, None
        self._refuse_after(-1, error)
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
            sock.close()
        if child is not None:
            reap(child)

    def _forked(self) -> None:
        """In the child of a fork: the connection is the parent's. Close our copy without a word on the wire."""
        sock = self._socket
        self._reset()
        if sock is not None:
            sock.close()


def unreachable(target: object, error: OSError) -> str:
    """Why a connection cannot be made, and what to do, for a person."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"cannot connect to {target}: {reason}; is the server running there?"


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


_lines: WeakSet[BlockingLine] = WeakSet()


def _after_fork() -> None:
    for line in list(_lines):
        line._forked()  # noqa: SLF001  # the same page


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
