"""The way to a target for threads: dials, redials, forks and closes; floor 6: traffic is `Link`'s."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from time import monotonic
from typing import Any, Final
from weakref import WeakSet

from rpcfast.caller import Request
from rpcfast.errors import DECODE_ERRORS, DeadlineExceeded, ParseError, Unavailable
from rpcfast.link import IDLE, Link, Waiter, acquire
from rpcfast.service import Binding
from rpcfast.transport.pipes import spawn
from rpcfast.transport.stream import connect_blocking
from rpcfast.transport.target import Target
from rpcfast.wire.events import Kind
from rpcfast.wire.native import Hello, NativeCore

__all__ = ["BlockingLine", "unreachable"]

DIAL_TIMEOUT: Final = 10.0
MAX_TRIES: Final = 3
"""Connections that a call may find lost before it is sent."""
CLOSED: Final = "the client was closed"


class BlockingLine:
    """A connection to a target, dialled at the first call and again after it was lost. Safe to share between threads.

    The child of a fork gets a connection of its own; the parent's is left alone. A line that is forgotten without
    `close` warns (`ResourceWarning`) and closes its connection.
    """

    def __init__(self, target: Target, binding: Binding, hello: Hello) -> None:
        self.target = target
        self._binding = binding
        self._hello = hello
        self._closed = False
        self._dialling = threading.Lock()
        self._link: Link | None = None
        self._links: set[Link] = set()
        """Those that are not closed: the one for new calls, and those that only finish theirs."""
        _lines.add(self)

    def __repr__(self) -> str:
        link = self._link
        state = "closed" if self._closed else "not connected" if link is None or link.leaving else "connected"
        return (
            f"<BlockingLine {state} to {self.target}, {sum(len(link.calls) for link in list(self._links))} in flight>"
        )

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if not self._closed and self.__dict__.get("_links"):
            warn(f"unclosed {self!r}: use `with`, or close()", ResourceWarning, source=self, stacklevel=2)
            self._close()

    def call(self, request: Request) -> Any:
        """Make a call and wait for its answer; raises its `RPCError`, `DeadlineExceeded` or `Unavailable`."""
        waiter = Waiter()
        link = self._link
        if link is None or not link.call_alone(request, waiter):
            link = self._enter(request, waiter, Kind.CALL)
            try:
                link.wait(waiter, request.deadline)
            finally:
                link.finish(waiter)
        if waiter.error is not None:
            raise waiter.error
        try:
            return request.decode(waiter.answer)
        except DECODE_ERRORS as error:
            raise ParseError(f"the result cannot be read as what was asked for: {error}") from error

    def notify(self, request: Request) -> None:
        """Send a notification: no answer comes. Raises `Unavailable` when there is no connection."""
        waiter = Waiter()
        self._enter(request, waiter, Kind.NOTIFICATION).finish(waiter)

    def _enter(self, request: Request, waiter: Waiter, kind: int) -> Link:
        """Send on the connection for new calls; one that turns out to take none was sent nothing, and is left."""
        for _ in range(MAX_TRIES):
            link, now = self._link, monotonic()
            if link is None or link.leaving or now - link.used > IDLE or request.deadline <= now:
                link = self._connected(request.deadline)
            link.used = now
            if link.start(request, waiter, kind):
                return link
        raise Unavailable(f"{self.target} closes each connection before a call is sent")

    def close(self) -> None:
        """Close, also while other threads dial, send or wait: their calls fail with `Unavailable`. May be called again.

        A child process gets 5 seconds to end.
        """
        for link in self._close():
            link.reap()

    def _close(self) -> list[Link]:
        self._closed = True
        links = list(self._links)
        for link in links:
            link.close(Unavailable(CLOSED))
        return links

    # ---- the connection

    def _connected(self, deadline: float) -> Link:
        acquire(self._dialling, deadline)
        try:
            link = self._link
            if link is not None and not link.leaving and monotonic() - link.used > IDLE:
                link.look()
            if link is None or link.leaving:
                self._check_open()
                link = self._dial(deadline)
                self._links.add(link)
                self._link = link
                self._check_open()  # close() may have come meanwhile, and not have seen it
            link.used = monotonic()
            return link
        finally:
            self._dialling.release()

    def _check_open(self) -> None:
        if self._closed:
            self._close()
            raise Unavailable(CLOSED)

    def _dial(self, deadline: float) -> Link:
        child = None
        try:
            if self.target.scheme == "exec":
                sock, child = spawn(self.target.command)
            else:
                sock = connect_blocking(self.target, min(DIAL_TIMEOUT, deadline - monotonic()))
        except (OSError, ValueError) as error:  # ValueError: a host name that is none
            if monotonic() >= deadline:
                raise DeadlineExceeded(f"no connection to {self.target} before the deadline") from error
            raise Unavailable(unreachable(self.target, error)) from error
        sock.settimeout(None)
        core = NativeCore(client=True, hello=self._hello)
        return Link(sock, child, core, self._binding.decode_error, str(self.target), on_end=self._links.discard)

    def _forked(self) -> None:
        """In the child of a fork: whatever the other threads held is left behind."""
        links = list(self._links)
        self._dialling = threading.Lock()
        self._link = None
        self._links = set()
        for link in links:
            link.forget()


def unreachable(target: object, error: Exception) -> str:
    """Why a connection cannot be made, and what to do, for a person."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"cannot connect to {target}: {reason}; is the server running there?"


_lines: WeakSet[BlockingLine] = WeakSet()


def _after_fork() -> None:
    for line in list(_lines):
        line._forked()  # noqa: SLF001  # the same page


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
