"""A `Server` object as a client's target: served in the client's own loop, or in a loop in a thread; floor 6.

Knows nothing of calls: the client that it is given makes them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from asyncio import get_running_loop
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from rpcfast.caller import Request
from rpcfast.errors import Unavailable
from rpcfast.server import Server, new_event_loop
from rpcfast.serving import Serving

__all__ = ["Host", "Portal"]

STACK_SIZE: Final = 1024 * 1024
"""Of a loop's thread: msgspec needs more than the 128 KiB that some C libraries give, or deep values crash it."""
CLOSED: Final = "the client was closed"
_starting = threading.Lock()


class Host:
    """A `Server` object served in this loop, in a task of its own, in which its lifespan begins and ends."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = asyncio.Event()
        self._serving: asyncio.Future[Serving] = get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._run())
        _hosts.add(self)
        self._task.add_done_callback(lambda _: _hosts.discard(self))

    async def _run(self) -> None:
        try:
            async with self._server.serving() as serving:
                self._serving.set_result(serving)
                await self._stop.wait()
        except Exception as error:
            if self._serving.done():
                raise
            self._serving.set_exception(error)
            self._serving.exception()  # nobody may wait any more

    async def started(self) -> Serving:
        """Wait until the server's lifespan has begun; raises `Unavailable` when it fails."""
        try:
            return await asyncio.shield(self._serving)
        except Exception as error:
            raise Unavailable(f"{self._server!r} could not start: {error}") from error

    def forget(self) -> None:
        """Stop serving without anybody who waits for it."""
        self._stop.set()

    async def stop(self) -> None:
        """Stop serving; raises what the lifespan's end raises."""
        self._stop.set()
        if not self._serving.done():
            self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()


class Portal:
    """An event loop in a thread of its own, started by the first call, and an asynchronous client in it. Thread-safe.

    The child of a fork starts a loop, and the server's lifespan, of its own. A portal that is forgotten without `close`
    warns (`ResourceWarning`) and ends its thread.
    """

    def __init__(self, make_client: Callable[[], Any]) -> None:
        self._make_client = make_client
        self._closed = False
        self._reset()
        _portals.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        state = "closed" if self._closed else "started" if self._loop else "not started"
        return f"<Portal {state}>"

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if self._loop is not None and not self._closed:
            warn(f"unclosed {self!r}: use `with`, or close()", ResourceWarning, source=self, stacklevel=2)
            # In a thread: whichever thread collects garbage must not wait for a server's lifespan to end.
            with suppress(RuntimeError):  # the interpreter ends
                threading.Thread(target=_end, args=(self._client, self._loop, self._thread), daemon=True).start()

    def call(self, request: Request) -> Any:
        """See `BlockingLine.call`. An interrupt cancels the call at the server."""
        return self._run(lambda client: client._answer(request))  # noqa: SLF001  # the client's other half

    def notify(self, request: Request) -> None:
        """See `BlockingLine.notify`."""
        self._run(lambda client: client._tell(request))  # noqa: SLF001  # as above

    def _run(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        with self._lock:  # so that nothing is handed to a loop that close() is about to end
            loop = self._started()
            future = asyncio.run_coroutine_threadsafe(work(self._client), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise Unavailable(CLOSED)
        if self._loop is None:
            loop = new_event_loop("auto")()
            self._client = self._make_client()
            self._thread = threading.Thread(target=_run, args=(loop, self._client), name="rpcfast-portal", daemon=True)
            start_thread(self._thread)
            self._loop = loop
        self._refuse_own_thread()
        return self._loop

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a procedure that runs in this loop would wait for itself: serve it with thread=True")

    def close(self) -> None:
        """See `BlockingLine.close`; stops the server and ends the thread."""
        self._refuse_own_thread()
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            _end(self._client, loop, self._thread)

    def _forked(self) -> None:
        if self._loop is not None:
            _left_behind.append((self._loop, self._client))
        self._reset()


def _run(loop: asyncio.AbstractEventLoop, client: Any) -> None:
    loop.run_forever()
    del client  # kept until here, so that a forgotten portal's calls and server can still be ended in good order


def _end(client: Any, loop: asyncio.AbstractEventLoop, thread: Any) -> None:
    try:
        asyncio.run_coroutine_threadsafe(client.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        with suppress(RuntimeError):  # a thread that was interrupted here may have closed it
            loop.run_until_complete(_drain())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _drain() -> None:
    """Let calls that came while the client was being closed fail."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        await asyncio.wait(tasks)


def start_thread(thread: threading.Thread) -> None:
    """Start a thread that decodes, with a stack that is large enough."""
    with _starting:
        before = threading.stack_size(STACK_SIZE)
        try:
            thread.start()
        finally:
            threading.stack_size(before)


_hosts: Final[set[Host]] = set()
"""Kept while they serve: a loop holds its tasks only weakly."""
_portals: WeakSet[Portal] = WeakSet()
_left_behind: Final[list[Any]] = []
"""The parent's loops, in the child of a fork: to close one would change what the parent's epoll watches."""


def _after_fork() -> None:
    for portal in list(_portals):
        portal._forked()  # noqa: SLF001  # the same page


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
