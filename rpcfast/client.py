"""`AsyncClient` and `Client`: any attribute is a remote procedure; floor 7. One face, spoken over two kinds of line.

What a user calls is written once, in `Face`; a line knows how to bring an encoded call to a connection and its answer
back, in an event loop or in threads.
"""

from __future__ import annotations

import asyncio
import copy
import subprocess
import warnings
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, Final, Self, TypeVar, cast, overload

import msgspec

from rpcfast.blocking import CLOSED, DIAL_TIMEOUT, BlockingLine, unreachable
from rpcfast.caller import Request
from rpcfast.codecs import get_codec
from rpcfast.connection import Connection
from rpcfast.errors import DeadlineExceeded, InvalidRequest, Unavailable
from rpcfast.limits import Limits
from rpcfast.portal import Host, Portal
from rpcfast.server import Server
from rpcfast.service import native_binding
from rpcfast.transport import pipes, stream
from rpcfast.transport.target import Target, parse_target
from rpcfast.wire.native import Hello, NativeCore

__all__ = ["AsyncClient", "Client"]

DEFAULT_TIMEOUT: Final = 30.0
CLOSE_TIMEOUT: Final = 1.0
"""Seconds that what is queued gets to leave when a client is closed."""
UNSET: Final[Any] = msgspec.UNSET
T = TypeVar("T")


class Procedure:
    """A remote procedure by its name: call it, or go on with `.name` for a dotted one."""

    def __init__(self, face: Face, name: str) -> None:
        self._face = face
        self._name = name
        self._wire_name = name.encode()

    def __repr__(self) -> str:
        return f"<procedure {self._name} of {self._face!r}>"

    def __getattr__(self, name: str) -> Procedure:
        if name.startswith("_"):
            raise AttributeError(name)
        procedure = Procedure(self._face, f"{self._name}.{name}")
        self.__dict__[name] = procedure
        return procedure

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Call it, with parameters by position or by name."""
        face = self._face
        return face._perform(self._wire_name, face._encode_params(args, params))  # noqa: SLF001  # its other half


class Face:
    """What both clients offer. `_perform` and `_tell` are the line's side: they give a value, or a coroutine of one."""

    def __init__(
        self,
        target: str | Server,
        *,
        timeout: float | None = UNSET,
        metadata: Mapping[str, str] | None = None,
        codec: str = "msgpack",
        limits: Limits | None = None,
    ) -> None:
        """Prepare to call `target`; the connection is made by the first call.

        `target` is `tcp://host:port`, `unix:///path`, `exec:COMMAND`, or a `Server` in this process. `timeout` is how
        long a call may take, in seconds (default 30; None: for ever); given here or at a call, the server is told and
        stops too.
        `metadata` goes with every call. Raises `ValueError` for a target that cannot be read, `LookupError` for a
        codec that is not registered.
        """
        self._target: Target | Server = target if isinstance(target, Server) else parse_target(target)
        self._limits = limits or Limits()
        self._codec = get_codec(codec)
        self._hello = Hello(codec, self._limits.max_message_size)
        self._binding = native_binding(self._codec, self._limits)
        self._encode = self._codec.bind(tuple[Any, ...] | dict[str, Any])[0]
        self._decode = self._codec.bind(Any)[1]
        self._decoders: dict[Any, Any] = {}
        self._timeout = DEFAULT_TIMEOUT if timeout is UNSET else timeout
        self._told_timeout = None if timeout is UNSET else timeout
        self._metadata = dict(metadata) if metadata else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._target}>"

    def __getattr__(self, name: str) -> Procedure:
        if name.startswith("_"):
            raise AttributeError(name)
        procedure = Procedure(self, name)
        self.__dict__[name] = procedure  # found without this method from now on
        return procedure

    @overload
    def call(  # type: ignore[misc]  # mypy wants a superclass as self; each of the two clients has its own result
        self: Client,
        name: str,
        /,
        *args: Any,
        result_type: type[T],
        timeout: float | None = ...,
        metadata: Mapping[str, str] | None = ...,
        **params: Any,
    ) -> T: ...

    @overload
    def call(  # type: ignore[misc]
        self: AsyncClient,
        name: str,
        /,
        *args: Any,
        result_type: type[T],
        timeout: float | None = ...,
        metadata: Mapping[str, str] | None = ...,
        **params: Any,
    ) -> Awaitable[T]: ...

    @overload
    def call(
        self,
        name: str,
        /,
        *args: Any,
        result_type: Any = ...,
        timeout: float | None = ...,
        metadata: Mapping[str, str] | None = ...,
        **params: Any,
    ) -> Any: ...

    def call(
        self,
        name: str,
        /,
        *args: Any,
        timeout: float | None = UNSET,
        metadata: Mapping[str, str] | None = None,
        result_type: Any = Any,
        **params: Any,
    ) -> Any:
        """Call the procedure `name`; gives its result (`AsyncClient`: to be awaited).

        `timeout` (seconds) and `metadata` hold for this call, `metadata` beside the client's own; the result is decoded
        to, and checked against, `result_type`. A parameter that is named like one of these goes by position.

        Raises the procedure's `RPCError`, `DeadlineExceeded` after the timeout, `Unavailable` when there is no
        connection or it is lost, `TypeError` for parameters that cannot be sent. A cancelled `await` cancels the call
        at the server.
        """
        body = self._encode_params(args, params)
        return self._perform(name.encode(), body, self._decoder(result_type), timeout, metadata)

    def notify(self, name: str, /, *args: Any, **params: Any) -> Any:
        """Call a procedure one way: no answer comes, not even an error. `AsyncClient`: to be awaited.

        Raises `Unavailable` when there is no connection, `TypeError` for parameters that cannot be sent.
        """
        return self._tell(
            Request(name.encode(), self._encode_params(args, params), self._decode, self._deadline(UNSET))
        )

    def __call__(self, message: Mapping[str, Any], /) -> Any:
        """Make the call that a JSON-RPC 2.0 request object describes; gives its result, or None without an `id`.

        Raises as `call` does, and `InvalidRequest` for an object that is no request.
        """
        method, params = message.get("method"), message.get("params", ())
        if (
            message.get("jsonrpc") != "2.0"
            or not isinstance(method, str)
            or not isinstance(params, list | tuple | dict)
        ):
            raise InvalidRequest(
                'a JSON-RPC request is {"jsonrpc": "2.0", "method": text, "params": list or dict, "id": …}'
            )
        body = self._encode(params if isinstance(params, dict) else tuple(cast("list[Any]", params)))
        if "id" in message:
            return self._perform(method.encode(), body)
        return self._tell(Request(method.encode(), body, self._decode, self._deadline(UNSET)))

    def _encode_params(self, args: tuple[Any, ...], params: dict[str, Any]) -> bytes:
        if args and params:
            raise TypeError("parameters go all by position or all by name, not mixed")
        try:
            return self._encode(params or args)
        except (OverflowError, ValueError) as error:
            raise TypeError(f"the parameters cannot be sent: {error}") from error

    def _decoder(self, kind: Any) -> Any:
        if kind is Any:
            return self._decode
        if kind not in self._decoders:
            self._decoders[kind] = self._codec.bind(kind)[1]
        return self._decoders[kind]

    def _deadline(self, timeout: Any) -> float:
        seconds = self._timeout if timeout is UNSET else timeout
        return inf if seconds is None else monotonic() + seconds

    def _request(
        self,
        name: bytes,
        body: bytes,
        decode: Any = None,
        timeout: Any = UNSET,
        metadata: Mapping[str, str] | None = None,
    ) -> Request:
        told = self._told_timeout if timeout is UNSET else timeout
        mine = self._metadata
        both = {**mine, **metadata} if mine and metadata else mine or metadata or None
        return Request(name, body, decode or self._decode, self._deadline(timeout), told, both)

    def _perform(self, *call: Any) -> Any:
        raise NotImplementedError

    def _tell(self, request: Request) -> Any:
        raise NotImplementedError


class AsyncClient(Face):
    """A client for one event loop: `await client.sum(2, 3)`. Calls share one connection; answers come in any order.

    Use it as `async with`, or `await client.close()` in the end; one that is forgotten warns (`ResourceWarning`) and
    closes its connection. A lost connection fails its calls with `Unavailable` and is dialled again by the next one.
    Not thread-safe: it belongs to the loop that first used it, and raises `RuntimeError` in another.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Connection | None = None
        self._dialling: asyncio.Task[Connection] | None = None
        self._kept = Kept()
        self._host: Host | None = None
        self._closed = False

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if "_kept" in self.__dict__ and self._kept.open and not self._closed:
            warn(f"unclosed {self!r}: use `async with`, or await close()", ResourceWarning, source=self, stacklevel=2)
            if self._loop is not None and not self._loop.is_closed():
                for connection in list(self._kept.open):
                    self._loop.call_soon_threadsafe(connection.abort)
                if self._host is not None:
                    self._loop.call_soon_threadsafe(self._host.forget)

    async def __aenter__(self) -> Self:
        await self._connected(inf)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, also while it is dialled. Calls in flight fail with `Unavailable`. May be called again.

        A child process gets 5 seconds to end; a `Server` in this process is stopped.
        """
        self._closed = True
        self._connection = None
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        await self._kept.close()
        if self._host is not None:
            await self._host.stop()

    def _perform(self, *call: Any) -> Coroutine[Any, Any, Any]:
        return self._answer(self._request(*call))

    async def _answer(self, request: Request) -> Any:
        connection = self._connection
        if connection is None or connection.leaving or connection.loop is not get_running_loop():
            connection = await self._connected(request.deadline)
        caller = connection.caller
        future = caller.call(request, connection.loop.create_future())
        try:
            return await future
        except asyncio.CancelledError:
            caller.abandon(future)
            raise

    async def _tell(self, request: Request) -> None:
        connection = await self._connected(request.deadline)
        connection.caller.notify(request)

    async def _connected(self, deadline: float) -> Connection:
        """The connection for new calls; dialled once, however many wait for it, each of whom may be cancelled."""
        loop = get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise RuntimeError(f"{self!r} belongs to another event loop: make one client for each loop")
            self._loop = loop
        if self._connection is None or self._connection.leaving:
            if self._closed:
                raise Unavailable(CLOSED)
            if self._dialling is None:
                self._dialling = asyncio.ensure_future(self._dial())
                self._dialling.add_done_callback(self._dialled)
            dialling = self._dialling
            seconds = None if deadline == inf else max(deadline - monotonic(), 0.0)
            done, _ = await asyncio.wait([dialling], timeout=seconds)
            if not done:
                raise DeadlineExceeded(f"no connection to {self._target} before the deadline")
            if dialling.cancelled():  # by close()
                raise Unavailable(CLOSED)
            if (error := dialling.exception()) is not None:
                raise copy.copy(error) from error.__cause__
            return dialling.result()  # it may be lost already; it says why when it is called
        return self._connection

    def _dialled(self, task: asyncio.Task[Connection]) -> None:
        self._dialling = None
        if not task.cancelled():
            task.exception()  # those who waited have it; nobody may be left

    async def _dial(self) -> Connection:
        core = NativeCore(client=True, hello=self._hello)
        connection = Connection(core, self._binding, self._limits, on_close=self._kept.lost, only_calls=True)
        try:
            await self._attach(connection)
        except (OSError, ValueError) as error:  # ValueError: a host name that is none
            raise Unavailable(unreachable(self._target, error)) from error
        before, self._connection = self._connection, connection
        if before is not None and not before.lost and not before.busy:
            before.close()
        return connection

    async def _attach(self, connection: Connection) -> None:
        target = self._target
        if isinstance(target, Server):
            if self._host is None:
                self._host = Host(target)
            try:
                serving = await self._host.started()
            except Unavailable:
                self._host = None  # the next call starts it again
                raise
            self._kept.open[connection] = None
            serving.accept(connection)
        elif target.scheme == "exec":
            sock, child = pipes.spawn(target.command)
            self._kept.open[connection] = child
            await connection.loop.create_unix_connection(lambda: connection, sock=sock)
        else:
            async with asyncio.timeout(DIAL_TIMEOUT):
                await stream.dial(target, lambda: connection)
            self._kept.open[connection] = None


class Kept:
    """The connections of a client, and their children: an object of its own, so that they keep no client alive."""

    def __init__(self) -> None:
        self.open: dict[Connection, subprocess.Popen[bytes] | None] = {}
        self._reaping: set[asyncio.Future[None]] = set()
        self._emptied = asyncio.Event()

    def lost(self, connection: Connection) -> None:
        """Let go of a connection; see to it that its child process ends."""
        child = self.open.pop(connection, None)
        if not self.open:
            self._emptied.set()
        if child is not None:
            reaping = connection.loop.run_in_executor(None, pipes.reap, child)
            self._reaping.add(reaping)
            reaping.add_done_callback(self._reaping.discard)

    async def close(self) -> None:
        """Close all, and wait for their children to end."""
        for connection in list(self.open):
            connection.caller.close(Unavailable(CLOSED))
            connection.close()
        if self.open:
            self._emptied.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), CLOSE_TIMEOUT)
        for connection in list(self.open):
            connection.abort()
        if self._reaping:
            await asyncio.wait(self._reaping)


class Client(Face):
    """A blocking client: `client.sum(2, 3)`. Safe to share between threads; a forked child gets its own connection.

    Use it as `with`, or `client.close()` in the end. A lost connection fails its calls with `Unavailable` and is
    dialled again by the next one.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        target = self._target
        self._line = (
            Portal(lambda: AsyncClient(target, **options))
            if isinstance(target, Server)
            else BlockingLine(target, self._binding, self._hello)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Calls in flight in other threads fail with `Unavailable`."""
        self._line.close()

    def _perform(self, *call: Any) -> Any:
        return self._line.call(self._request(*call))

    def _tell(self, request: Request) -> None:
        self._line.notify(request)
