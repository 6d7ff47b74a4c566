"""`AsyncClient` and `Client`: any attribute is a remote procedure; floor 7. One face, spoken over two kinds of line.

What a user calls is written once, in `Face`; a line knows how to bring an encoded call to a connection and its answer back,
in an event loop or in threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from math import inf
from time import monotonic
from typing import Any, Final, Self

import msgspec

from rpcfast.blocking import DIAL_TIMEOUT, BlockingLine, unreachable
from rpcfast.caller import Request
from rpcfast.codecs import get_codec
from rpcfast.connection import Connection
from rpcfast.errors import InvalidRequest, Unavailable
from rpcfast.limits import Limits
from rpcfast.server import Server, new_event_loop
from rpcfast.service import native_binding
from rpcfast.transport import pipes, stream
from rpcfast.transport.target import Target, parse_target
from rpcfast.wire.native import Hello, NativeCore

__all__ = ["AsyncClient", "Client"]

DEFAULT_TIMEOUT: Final = 30.0
UNSET: Final[Any] = msgspec.UNSET


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

        `target` is `tcp://host:port`, `unix:///path`, `exec:COMMAND`, or a `Server` in this process. `timeout` is how long a call
        may take, in seconds (default 30; None: for ever); given here or at a call, the server is told and stops too.
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

        `timeout` (seconds) and `metadata` hold for this call, `metadata` beside the client's own; the result is decoded to,
        and checked against, `result_type`. A parameter that is named like one of these goes by position.

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
        body = self._encode(params if isinstance(params, dict) else tuple(params))
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
        mine = self._metadata
        both = {**mine, **metadata} if mine and metadata else mine or metadata
        told = self._told_timeout if timeout is UNSET else timeout
        return Request(name, body, decode or self._decode, self._deadline(timeout), told, both)

    def _perform(self, name: bytes, body: bytes, *rest: Any) -> Any:
        raise NotImplementedError

    def _tell(self, request: Request) -> Any:
        raise NotImplementedError


class AsyncClient(Face):
    """A client for one event loop: `await client.sum(2, 3)`. Many calls share one connection; answers come in any order.

    Use it as `async with`, or `await client.close()` in the end. A lost connection fails its calls with `Unavailable`
    and is dialled again by the next one. Not thread-safe: it belongs to the loop that first used it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connection: Connection | None = None
        self._dialling: asyncio.Task[Connection] | None = None
        self._stack = AsyncExitStack()
        self._serving: Any = None
        self._open: set[Connection] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        await self._connected(monotonic() + DIAL_TIMEOUT)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Calls in flight fail with `Unavailable`."""
        self._closed = True
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait([self._dialling])
        for connection in list(self._open):
            connection.caller.fail(Unavailable("the client was closed"))
            connection.close()
        await self._stack.aclose()
        self._connection = None

    async def _perform(self, *call: Any) -> Any:
        request = self._request(*call)
        connection = self._connection
        if connection is None or connection.leaving:
            connection = await self._connected(request.deadline)
        return await connection.caller.call(request)

    async def _tell(self, request: Request) -> None:
        connection = await self._connected(request.deadline)
        connection.caller.notify(request)

    async def _connected(self, deadline: float) -> Connection:
        """The connection for new calls; dialled once, however many wait for it."""
        if self._closed:
            raise Unavailable("the client was closed")
        if self._connection is None or self._connection.leaving:
            if self._dialling is None:
                self._dialling = asyncio.ensure_future(self._dial())
                self._dialling.add_done_callback(self._dialled)
            seconds = min(deadline - monotonic(), DIAL_TIMEOUT)
            done, _ = await asyncio.wait([self._dialling], timeout=max(seconds, 0.0))
            if not done:
                raise Unavailable(f"cannot connect to {self._target} within {seconds:.3g} s")
            return next(iter(done)).result()
        return self._connection

    def _dialled(self, task: asyncio.Task[Connection]) -> None:
        self._dialling = None
        if not task.cancelled():
            task.exception()  # those who waited have it; nobody may be left

    async def _dial(self) -> Connection:
        connection = Connection(
            NativeCore(client=True, hello=self._hello), self._binding, self._limits, on_close=self._open.discard, only_calls=True
        )
        try:
            await self._attach(connection)
        except OSError as error:
            raise Unavailable(unreachable(self._target, error)) from error
        self._open.add(connection)
        self._connection = connection
        return connection

    async def _attach(self, connection: Connection) -> None:
        target = self._target
        if isinstance(target, Server):
            if self._serving is None:
                self._serving = await self._stack.enter_async_context(target.serving())
            self._serving.accept(connection)
        elif target.scheme == "exec":
            sock, child = pipes.spawn(target.command)
            self._stack.push_async_callback(asyncio.to_thread, pipes.reap, child)
            await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=sock)
        else:
            await stream.dial(target, lambda: connection)


class Client(Face):
    """A blocking client: `client.sum(2, 3)`. Safe to share between threads; a forked child gets its own connection.

    Use it as `with`, or `client.close()` in the end. A lost connection fails its calls with `Unavailable` and is
    dialled again by the next one.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        target = self._target
        self._line = (
            Portal(target, options) if isinstance(target, Server) else BlockingLine(target, self._binding, self._hello)
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


STACK_SIZE: Final = 1024 * 1024
"""Of a loop's thread: msgspec needs more than the 128 KiB that some C libraries give (musl), or deep values crash it."""
_starting = threading.Lock()


def start_thread(thread: threading.Thread) -> None:
    """Start a thread that decodes, with a stack that is large enough."""
    with _starting:
        before = threading.stack_size(STACK_SIZE)
        try:
            thread.start()
        finally:
            threading.stack_size(before)


class Portal:
    """The line to a `Server` object of this process: an event loop in a thread of its own, started by the first call."""

    def __init__(self, server: Server, options: Mapping[str, Any]) -> None:
        self._server = server
        self._options = options
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: AsyncClient | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def call(self, request: Request) -> Any:
        """See `BlockingLine.call`."""
        return self._run(self._call(request))

    def notify(self, request: Request) -> None:
        """See `BlockingLine.notify`."""
        self._run(self._notify(request))

    async def _call(self, request: Request) -> Any:
        assert self._client is not None  # noqa: S101  # set before anything runs
        connection = await self._client._connected(request.deadline)  # noqa: SLF001  # the same page
        return await connection.caller.call(request)

    async def _notify(self, request: Request) -> None:
        assert self._client is not None  # noqa: S101
        await self._client._tell(request)  # noqa: SLF001

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            loop = self._started()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise Unavailable("the client was closed")
            if self._loop is None:
                self._loop = new_event_loop("auto")()
                self._client = AsyncClient(self._server, **self._options)
                self._thread = threading.Thread(target=self._loop.run_forever, name="rpcfast-portal", daemon=True)
                start_thread(self._thread)
            return self._loop

    def close(self) -> None:
        """See `BlockingLine.close`; ends the thread."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is None or self._client is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._client.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
