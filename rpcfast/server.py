"""`Server`: what a user makes, decorates with and runs; floor 6."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

from rpcfast.limits import Limits
from rpcfast.service import Registry
from rpcfast.serving import Serving
from rpcfast.transport import stream

__all__ = ["Server", "new_event_loop"]


class Server(Registry):
    """A service: typed functions, callable by everyone on one port.

    `name` and `version` stand in the documents; `limits` bounds what peers may ask for; `lifespan` is an async context
    manager function, called with the server, whose body runs around serving.
    """

    def __init__(
        self,
        name: str = "rpcfast",
        version: str = "0",
        *,
        limits: Limits | None = None,
        lifespan: Callable[[Server], AbstractAsyncContextManager[Any]] | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.version = version
        self.limits = limits or Limits()
        self.addresses: list[str] = []
        """Where it listens, as targets for a client; empty before and after."""
        self._lifespan = lifespan
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {len(self.procedures)} procedures)"

    def serving(self) -> Serving:
        """One run in the current loop, listening nowhere yet: `async with server.serving() as serving`."""
        return Serving(self, self.limits, self._lifespan(self) if self._lifespan else None)

    def run(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        uds: str | None = None,
        fd: int | None = None,
        stdio: bool = False,
        loop: str = "auto",
        on_ready: Callable[[Server], Any] | None = None,
    ) -> None:
        """Serve until SIGINT or SIGTERM; see `serve`. A second signal ends the process at once.

        `loop` is auto (uvloop where it is installed), uvloop or asyncio. When it cannot listen, one line on the
        standard error says why and the process exits with code 2.
        """
        try:
            with asyncio.Runner(loop_factory=new_event_loop(loop)) as runner:
                runner.run(self._run(host, port, uds=uds, fd=fd, stdio=stdio, on_ready=on_ready or announce))
        except CannotListen as error:
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(2) from None

    async def _run(self, host: str, port: int, **options: Any) -> None:
        with _signals(self.stop):
            await self.serve(host, port, **options)

    async def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        uds: str | None = None,
        fd: int | None = None,
        stdio: bool = False,
        on_ready: Callable[[Server], Any] | None = None,
    ) -> None:
        """Serve in the running loop until `stop()` or until this is cancelled.

        Listens on `host` and `port` (0: a free one), or on the Unix socket `uds`, or on the inherited listening socket
        `fd`, or talks over standard input and output. `on_ready(server)` is called once `addresses` is filled. When it
        stops, calls in flight get `limits.drain_timeout` seconds. Raises `CannotListen`, an `OSError`; cancelling
        cancels the calls in flight.
        """
        if self._stop is not None:
            raise RuntimeError("this server is serving already")
        sockets = [] if stdio else _bind(host, port, uds, fd)
        file = _identity(uds)
        self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
        try:
            async with self.serving() as serving:
                for sock in sockets:
                    await serving.listen(sock)
                self.addresses = [_address(sock) for sock in sockets]
                if on_ready is not None:
                    on_ready(self)
                await self._until_stopped(await _stdio(serving) if stdio else None)
                await serving.stop(self.limits.drain_timeout)
        finally:
            self._stop = self._loop = None
            self.addresses = []
            for sock in sockets:
                sock.close()
            if uds is not None and file == _identity(uds):  # the next server may have put its own there
                _remove(uds)

    async def _until_stopped(self, ended: asyncio.Future[None] | None) -> None:
        assert self._stop is not None  # noqa: S101  # set by serve
        if ended is None:
            await self._stop.wait()
            return
        stopped: asyncio.Future[Any] = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([stopped, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()

    def stop(self) -> None:
        """Stop serving: no new calls, those in flight may finish. Safe from any thread and from signal handlers."""
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(stop.set)


class CannotListen(OSError):  # it says what failed, as RPCError's subclasses do
    """An address that cannot be listened on; the text says what to do."""


def _bind(host: str, port: int, uds: str | None, fd: int | None) -> list[Any]:
    try:
        if fd is not None:
            return [stream.listen_fd(fd)]
        if uds is not None:
            return [stream.listen_unix(uds)]
        return stream.listen_tcp(host, port)
    except (OSError, OverflowError) as error:
        where = f"the descriptor {fd}" if fd is not None else uds if uds is not None else f"{host}:{port}"
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotListen(f"cannot listen on {where}: {reason}; {_advice(error, uds)}") from error


async def _stdio(serving: Serving) -> asyncio.Future[None]:
    try:
        return await serving.stdio()
    except (OSError, ValueError) as error:
        raise CannotListen(
            f"cannot talk over standard input and output: {error}; both must be open, and pipes or sockets"
        ) from error


def _remove(path: str) -> None:
    with suppress(OSError):
        Path(path).unlink()


def _identity(path: str | None) -> tuple[int, int] | None:
    """Which file a path leads to at this moment."""
    try:
        found = Path(path).stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def _advice(error: BaseException, uds: str | None) -> str:
    if isinstance(error, PermissionError):
        return "choose a port above 1023, or a place that you may write to"
    if uds is not None:
        return "choose another path"
    return "choose another address with --host and --port (0 picks a free port)"


def _address(sock: Any) -> str:
    name = sock.getsockname()
    if not isinstance(name, tuple):
        return f"unix://{os.fsdecode(name)}"
    return f"tcp://[{name[0]}]:{name[1]}" if ":" in name[0] else f"tcp://{name[0]}:{name[1]}"


def announce(server: Server) -> None:
    """Say on the standard error what is served where."""
    if not server.addresses:
        return  # over standard input and output: whoever started this process knows
    where = ", ".join(server.addresses)
    sys.stderr.write(f"{server.name}: {len(server.procedures)} procedures on {where}  (Ctrl-C stops)\n")
    sys.stderr.flush()


def new_event_loop(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """The factory for `auto`, `uvloop` or `asyncio`; raises `ValueError` for another, `ImportError` without uvloop."""
    if name not in ("auto", "uvloop", "asyncio"):
        raise ValueError(f"the loop {name!r} is unknown; there are auto, uvloop and asyncio")
    if name != "asyncio":
        try:
            import uvloop  # late: 40 ms that asyncio users need not pay
        except ImportError:
            if name == "uvloop":
                raise
        else:
            return uvloop.new_event_loop
    return asyncio.new_event_loop


class _signals:  # noqa: N801  # used as a function
    """While it lasts, the first SIGINT or SIGTERM calls `stop`, the second ends the process.

    A handler of `signal.signal`, not of the loop: it runs even while a procedure blocks the loop.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._old: dict[int, Any] = {}
        self._caught = 0

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._catch)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _catch(self, number: int, _: Any) -> None:
        self._caught += 1
        if self._caught > 1:
            os._exit(128 + number)
        self._stop()
