"""One list of behaviours, over every protocol, transport and event loop: the same service answers the same everywhere.

What differs by protocol (metadata, timeouts) stands beside the list. A child process is asked once for each loop of its
own, since it takes a tenth of a second to start.
"""

import asyncio
import itertools
import logging
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rpcfast import AsyncClient, Context, InvalidParams, Server, current_context
from rpcfast.errors import DeadlineExceeded, InternalError, MethodNotFound, RPCError, Unavailable
from tests.services import JsonClient, open_memory, open_stream, served, until

LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
PROTOCOLS = ("msgpack", "json", "jsonrpc")
TRANSPORTS = ("tcp", "unix", "memory")


class Bust(RPCError):
    """An error with a field of its own."""

    code = 4001
    balance: int


class Collapse(BaseException):
    """No `Exception`: it must not end the server all the same."""


def make_server() -> Server:  # one service, in one place
    """The service that is called everywhere."""
    server = Server()
    gates: dict[str, asyncio.Event] = {}
    log: list[str] = []

    def gate(name: str) -> asyncio.Event:
        return gates.setdefault(name, asyncio.Event())

    @server
    def sum(a: int, b: int) -> int:
        return a + b

    @server
    def greet(name: str, greeting: str = "hello", *, mark: str = "!") -> str:
        return f"{greeting} {name}{mark}"

    @server
    def who(prefix: str, ctx: Context) -> str:
        return f"{prefix} {ctx.peer.protocol} {current_context().peer.protocol}"

    @server
    async def fast(value: int) -> int:
        return value

    @server
    async def wait_for(name: str) -> str:
        await gate(name).wait()
        return f"{name} {current_context().peer.protocol}"

    @server
    def let_go(name: str) -> None:
        gate(name).set()

    @server(thread=True)
    def in_thread() -> tuple[bool, str]:
        return threading.current_thread().name.startswith("rpcfast"), current_context().peer.protocol

    @server(thread=True)
    def stops_in_thread() -> None:
        next(iter(()))

    @server
    def fails(how: str) -> int:
        raise ERRORS[how]

    @server
    async def fails_later(how: str) -> int:
        await asyncio.sleep(0)
        raise ERRORS[how]

    @server(thread=True)
    def fails_in_thread(how: str) -> int:
        raise ERRORS[how]

    @server
    def gives_object() -> Any:
        return object()

    @server
    async def gives_object_later() -> Any:
        await asyncio.sleep(0)
        return object()

    @server
    def note(text: str) -> None:
        log.append(text)

    @server
    def notes() -> list[str]:
        return log

    @server
    def echo(text: str) -> str:
        return text

    @server
    async def echo_later(text: str) -> str:
        await asyncio.sleep(0)
        return text

    @server
    def tenant(ctx: Context) -> str:
        return ctx.metadata.get("tenant", "") + current_context().metadata.get("tenant", "")

    @server
    async def tenant_later() -> str:
        await asyncio.sleep(0)
        return current_context().metadata.get("tenant", "")

    @server(timeout=0.05)
    async def too_long() -> None:
        await asyncio.Event().wait()

    return server


ERRORS = {
    "declared": Bust("broke", balance=3),
    "exception": ZeroDivisionError("secret text"),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "base": Collapse("secret text"),
    "cancelled": asyncio.CancelledError("secret text"),
}


@dataclass(frozen=True)
class Cell:
    """One place of the grid."""

    protocol: str
    transport: str

    @asynccontextmanager
    async def open(self, server: Server, folder: Path) -> AsyncIterator["Line"]:
        """Serve, and give what makes clients of it."""
        if self.transport == "memory":
            async with server.serving() as serving:
                yield Line(self, lambda: open_memory(serving), server, serving)
            return
        options = {"uds": str(folder / "s")} if self.transport == "unix" else {}
        async with served(server, **options) as address:
            yield Line(self, lambda: open_stream(address), address, None)


class Line:
    """Makes clients of one served service."""

    def __init__(self, cell: Cell, opens: Callable[[], Awaitable[Any]], target: Any, serving: Any) -> None:
        self.opens = opens
        self._cell = cell
        self._target = target
        self._serving = serving

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Any]:
        """A client with `call(name, …)` and `notify(name, …)`."""
        if self._cell.protocol == "jsonrpc":
            json = JsonClient(*await self.opens())
            try:
                yield json
            finally:
                await json.close()
            return
        async with AsyncClient(self._target, codec=self._cell.protocol, **options) as client:
            yield client


CELLS = [Cell(*place) for place in itertools.product(PROTOCOLS, TRANSPORTS)]
every_loop = pytest.mark.parametrize("loop", LOOPS)
every_cell = pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.protocol}-{cell.transport}")


def run(loop: str, work: Any) -> None:
    """Run in a new loop; no task may be left behind."""

    async def alone() -> None:
        await asyncio.wait_for(work, 30)
        await until(lambda: len(asyncio.all_tasks()) == 1)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(alone())


Behaviour = Callable[[Any], Awaitable[None]]


async def by_position(client: Any) -> None:
    """Parameters by position arrive in order."""
    assert await client.call("sum", 2, 3) == 5


async def by_name(client: Any) -> None:
    """Parameters by name arrive by name, in any order."""
    assert await client.call("sum", b=3, a=2) == 5


async def defaults(client: Any) -> None:
    """What is not given takes its default, by position and by name."""
    assert await client.call("greet", "x") == "hello x!"
    assert await client.call("greet", "x", "bye") == "bye x!"
    assert await client.call("greet", name="x", greeting="bye") == "bye x!"


async def keyword_only(client: Any) -> None:
    """A keyword-only parameter is given by name, and cannot be given by position."""
    assert await client.call("greet", name="x", mark="?") == "hello x?"
    with pytest.raises(InvalidParams):
        await client.call("greet", "x", "hello", "?")


async def context(client: Any) -> None:
    """The context is injected, is no parameter, and is the same from below a handler."""
    prefix, injected, below = (await client.call("who", "by")).split()
    assert prefix == "by"
    assert injected == below in ("native", "jsonrpc")


async def coroutine_that_does_not_wait(client: Any) -> None:
    """A coroutine that never waits is answered."""
    assert await client.call("fast", 7) == 7


async def coroutine_that_waits(client: Any) -> None:
    """A coroutine that waits lets another call of the same connection through, which wakes it; its context stays."""
    waiting = asyncio.ensure_future(client.call("wait_for", "one"))
    await client.call("let_go", "one")
    assert (await waiting).split()[1] in ("native", "jsonrpc")


async def thread(client: Any) -> None:
    """A function with thread=True runs in the pool, with its context."""
    in_pool, protocol = await client.call("in_thread")
    assert in_pool
    assert protocol in ("native", "jsonrpc")


async def declared_error(client: Any) -> None:
    """An RPCError of the user's own keeps code, message and fields, from each lane."""
    for name in ("fails", "fails_later", "fails_in_thread"):
        with pytest.raises(RPCError, match="broke") as caught:
            await client.call(name, "declared")
        assert (caught.value.code, caught.value.data) == (4001, {"balance": 3})


async def other_exceptions(client: Any) -> None:
    """Anything else that a handler raises, SystemExit too, is an InternalError without its text; the server lives."""
    for name, how in itertools.product(("fails", "fails_later"), ERRORS):
        if how != "declared" and (name, how) != ("fails_later", "cancelled"):
            with pytest.raises(InternalError) as caught:
                await client.call(name, how)
            assert "secret" not in f"{caught.value} {caught.value.data}"
            assert caught.value.data is None
    with pytest.raises(InternalError):
        await client.call("fails_in_thread", "exception")
    assert await client.call("sum", 1, 1) == 2


async def stop_iteration(client: Any) -> None:
    """StopIteration in a thread, which no future takes, is answered all the same."""
    with pytest.raises(InternalError):
        await client.call("stops_in_thread")


async def all_invalid_params(client: Any) -> None:
    """Each wrong, missing or surplus parameter is named, all at once."""
    for params, places in (
        ({"a": "x", "c": 1}, {("a",), ("b",), ("c",)}),
        ({"a": 1}, {("b",)}),
        ({}, {("a",), ("b",)}),
    ):
        with pytest.raises(InvalidParams, match="sum") as caught:
            await (client.call("sum", **params) if params else client.call("sum"))
        assert {tuple(error["loc"][:1]) for error in caught.value.data["errors"]} == places
    with pytest.raises(InvalidParams):
        await client.call("sum", 1, 2, 3)
    with pytest.raises(InvalidParams):
        await client.call("sum", 1, None)


async def unknown_method(client: Any) -> None:
    """A name that there is not is MethodNotFound, and named."""
    with pytest.raises(MethodNotFound, match="nothing"):
        await client.call("nothing", 1)


async def unserialisable(client: Any) -> None:
    """A result that no codec takes is an InternalError, from a function and from a coroutine that waited."""
    for name in ("gives_object", "gives_object_later"):
        with pytest.raises(InternalError):
            await client.call(name)


async def notifications(client: Any) -> None:
    """A notification runs, in order, and is not answered, also when it fails or is unknown."""
    await client.notify("note", "a")
    await client.notify("fails", "exception")
    await client.notify("fails_later", "base")
    await client.notify("nothing", "exception")
    await client.notify("sum", "wrong")
    await client.notify("note", "b")
    assert await client.call("notes") == ["a", "b"]


async def any_order(client: Any) -> None:
    """Two hundred calls wait at once on one connection and are answered in the reverse order."""
    done: list[int] = []

    async def one(number: int) -> None:
        await client.call("wait_for", f"g{number}")
        done.append(number)

    calls = [asyncio.ensure_future(one(number)) for number in range(200)]
    for number in reversed(range(200)):
        await client.call("let_go", f"g{number}")
    await asyncio.gather(*calls)
    assert done == list(reversed(range(200)))


async def large_bodies(client: Any) -> None:
    """A megabyte each way arrives whole, eight times at once, from a function and from a coroutine."""
    texts = [chr(97 + number) * 1_000_000 for number in range(8)]
    for name in ("echo", "echo_later"):
        assert await asyncio.gather(*(client.call(name, text) for text in texts)) == texts


async def own_timeout(client: Any) -> None:
    """A procedure's own timeout is answered with DeadlineExceeded."""
    with pytest.raises(DeadlineExceeded):
        await client.call("too_long")


BEHAVIOURS: tuple[Behaviour, ...] = (
    by_position,
    by_name,
    defaults,
    keyword_only,
    context,
    coroutine_that_does_not_wait,
    coroutine_that_waits,
    thread,
    declared_error,
    other_exceptions,
    stop_iteration,
    all_invalid_params,
    unknown_method,
    unserialisable,
    notifications,
    any_order,
    large_bodies,
    own_timeout,
)


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.__name__)
@every_cell
@every_loop
def test_the_service_behaves(loop: str, cell: Cell, behaviour: Behaviour, tmp_path: Path) -> None:
    """Each behaviour of the list above."""

    async def work() -> None:
        async with cell.open(make_server(), tmp_path) as line, line.client() as client:
            await behaviour(client)

    run(loop, work())


@every_cell
@every_loop
def test_a_client_that_only_stopped_sending_gets_its_answers(loop: str, cell: Cell, tmp_path: Path) -> None:
    """After a half-close, calls in flight are answered; then the server closes."""

    async def work() -> None:
        async with cell.open(make_server(), tmp_path) as line, line.client() as other:
            reader, writer = await line.opens()
            writer.write(b'{"jsonrpc":"2.0","method":"wait_for","params":["h"],"id":1}\n')
            writer.write(b'{"jsonrpc":"2.0","method":"sum","params":[2,3],"id":2}\n')
            writer.write_eof()
            assert await reader.readline() == b'{"jsonrpc":"2.0","id":2,"result":5}\n'
            await other.call("let_go", "h")
            assert await reader.read() == b'{"jsonrpc":"2.0","id":1,"result":"h jsonrpc"}\n'
            writer.close()

    run(loop, work())


@every_cell
@every_loop
def test_a_stop_answers_what_runs_and_refuses_what_comes(loop: str, cell: Cell, tmp_path: Path) -> None:
    """While the server drains, the call in flight is answered, a new one on the same connection is Unavailable."""

    async def work() -> None:
        server = make_server()
        async with cell.open(server, tmp_path) as line, line.client() as client:
            waiting = asyncio.ensure_future(client.call("wait_for", "stop"))
            await client.call("sum", 1, 1)
            if cell.transport == "memory":
                stopping = asyncio.ensure_future(line._serving.stop(5))
            else:
                server.stop()
                stopping = asyncio.ensure_future(asyncio.sleep(0))
            await asyncio.sleep(0.02)
            if cell.protocol == "jsonrpc":
                with pytest.raises(Unavailable):
                    await client.call("sum", 1, 1)
                await client.notify("let_go", "stop")  # a new call too: refused, silently
            assert not waiting.done()
            release(server)
            assert (await waiting).startswith("stop")
            await stopping

    run(loop, work())


def release(server: Server) -> None:
    """Let a waiting call go on, from beside the connection."""
    function: Any = server.procedures["let_go"].function
    function("stop")


@pytest.mark.parametrize("codec", ["msgpack", "json"])
@pytest.mark.parametrize("transport", TRANSPORTS)
@every_loop
def test_native_metadata_and_timeout(loop: str, transport: str, codec: str, tmp_path: Path) -> None:
    """Metadata reaches its own call and no other; a timeout of the caller ends the call on both sides."""

    async def work() -> None:
        async with Cell(codec, transport).open(make_server(), tmp_path) as line, line.client() as client:
            mine, later, nobody = await asyncio.gather(
                client.call("tenant", metadata={"tenant": "7"}),
                client.call("tenant_later", metadata={"tenant": "8"}),
                client.call("tenant"),
            )
            assert (mine, later, nobody) == ("77", "8", "")
            with pytest.raises(DeadlineExceeded):
                await client.call("wait_for", "never", timeout=0.05)
            assert await client.call("sum", 1, 1, timeout=5.0) == 2

    run(loop, work())


CHILD = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from rpcfast.server import new_event_loop
from tests.test_grid import make_server
with asyncio.Runner(loop_factory=new_event_loop(sys.argv[1])) as runner:
    runner.run(make_server().serve(stdio=True))
"""


@pytest.mark.parametrize("theirs", LOOPS)
@every_loop
def test_a_child_process_behaves(loop: str, theirs: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every behaviour once, over the socket that a child has for its standard input and output."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    target = f"exec:{sys.executable} {script} {theirs} {Path(__file__).parents[1]}"

    async def work() -> None:
        async with AsyncClient(target) as client:
            for behaviour in BEHAVIOURS:
                await behaviour(client)

    with caplog.at_level(logging.CRITICAL):
        run(loop, work())
