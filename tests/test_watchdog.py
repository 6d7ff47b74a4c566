"""The watchdog: names what holds the loop for more than a tenth of a second, once, and nobody else."""

import asyncio
import functools
import logging
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rpcfast import AsyncClient, Server
from rpcfast.schema import describe
from rpcfast.watchdog import Watchdog, code_of
from tests.services import until

BLOCK = 0.3


def make_server() -> Server:
    """Procedures that block in different ways, and one that does not."""
    server = Server()

    @server
    def blocks(seconds: float) -> None:
        time.sleep(seconds)

    @server
    def spins(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    @server
    async def blocks_later() -> None:
        await asyncio.sleep(0)
        time.sleep(BLOCK)

    @server
    def calls_another() -> None:
        for _ in range(60):
            blocks(0.005)

    @server(thread=True)
    def blocks_in_thread() -> None:
        time.sleep(BLOCK)

    @server
    def short() -> None:
        end = time.monotonic() + 0.004
        while time.monotonic() < end:
            pass

    @server
    async def many_steps() -> None:
        for _ in range(60):
            short()
            await asyncio.sleep(0)

    return server


@pytest.fixture
async def client(caplog: pytest.LogCaptureFixture) -> AsyncIterator[AsyncClient]:
    """A client of that service."""
    caplog.set_level(logging.WARNING, "rpcfast")
    async with AsyncClient(make_server()) as client:
        yield client


@pytest.mark.parametrize(
    ("name", "args", "advice"),
    [
        ("blocks", [BLOCK], "serve it with thread=True"),
        ("spins", [BLOCK], "serve it with thread=True"),
        ("blocks_later", [], "make it await"),
        ("calls_another", [], "serve it with thread=True"),
    ],
)
async def test_what_blocks_is_reported_by_name(
    name: str, args: list[Any], advice: str, client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A procedure that sleeps, computes, or blocks after an await is named with its line and with what to do."""
    await client.call(name, *args)
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith(f"{name} blocks the event loop (")
    assert "test_watchdog.py:" in text
    assert advice in text


async def test_it_is_reported_once(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """The second time says nothing new; another procedure is still reported."""
    await client.blocks(BLOCK)
    await client.blocks(BLOCK)
    await client.spins(BLOCK)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["blocks", "spins"]


async def test_it_is_reported_while_it_blocks(client: AsyncClient) -> None:
    """The report does not wait for the end, which may never come."""
    said = threading.Event()
    handler = logging.Handler()
    handler.emit = lambda _: said.set()  # type: ignore[method-assign]
    logging.getLogger("rpcfast").addHandler(handler)
    try:
        server: Any = client._target
        waited: list[bool] = []

        @server
        def stuck() -> None:
            waited.append(said.wait(10))

        await client.stuck()
        assert waited == [True]
    finally:
        logging.getLogger("rpcfast").removeHandler(handler)


async def test_many_short_calls_are_not_reported(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """A turn of the loop that takes half a second, made of a hundred calls of 4 ms each, is nobody's fault."""
    loop = asyncio.get_running_loop()
    longest, last = 0.0, loop.time()

    def beat() -> None:
        nonlocal longest, last
        longest, last = max(longest, loop.time() - last), loop.time()
        if beating:
            loop.call_soon(beat)

    beating = True
    beat()
    await asyncio.gather(*(client.short() for _ in range(100)))
    beating = False
    assert longest > 0.25
    assert not caplog.records


async def test_a_coroutine_of_many_short_steps_is_not_reported(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A coroutine that is found running at every look, but waits in between, blocks nothing."""
    await asyncio.gather(client.many_steps(), client.many_steps())
    assert not caplog.records


async def test_what_is_short_or_in_a_thread_is_not_reported(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """50 ms are no block, and a thread may take its time."""
    await client.blocks(0.05)
    await client.blocks_in_thread()
    assert not caplog.records


async def test_what_others_block_is_not_ours(client: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """A loop that is blocked by what is no procedure is not blamed on one."""
    call = asyncio.ensure_future(client.short())
    time.sleep(BLOCK)
    await call
    assert not caplog.records


async def test_it_ends_with_its_server() -> None:
    """The thread ends after the last server of this process stops."""
    async with AsyncClient(make_server()) as client:
        await client.short()
        names = [thread.name for thread in threading.enumerate()]
        assert "rpcfast-watchdog" in names
    await until(lambda: "rpcfast-watchdog" not in [thread.name for thread in threading.enumerate()])


def test_it_ends_when_its_loop_is_closed() -> None:
    """A loop that was closed without a word ends the thread, not with an exception in it."""

    async def start() -> Watchdog:
        watchdog = Watchdog({})
        watchdog._running = lambda: seen  # type: ignore[method-assign,assignment,return-value]
        watchdog.start()
        return watchdog

    class seen:  # noqa: N801  # stands for a sighting
        name, frame = "x", None

    watchdog = asyncio.run(start())
    watchdog._thread.join(5)
    assert not watchdog._thread.is_alive()


def test_the_code_of_every_kind_of_callable() -> None:
    """Functions, methods, wrapped functions, partials and callable objects have one; builtins have none."""

    def plain() -> None: ...

    @functools.wraps(plain)
    def wrapper() -> None: ...

    class Thing:
        def method(self) -> None: ...
        def __call__(self) -> None: ...

    assert code_of(plain) is plain.__code__
    assert code_of(wrapper) is plain.__code__
    assert code_of(Thing().method) is Thing.method.__code__
    assert code_of(Thing()) is Thing.__call__.__code__
    assert code_of(functools.partial(plain)) is plain.__code__
    assert code_of(len) is None


async def test_procedures_that_come_later_are_known() -> None:
    """The table of codes is made anew when there are more procedures, and only then."""

    def one() -> None: ...
    def two() -> None: ...

    procedures = {"one": describe(one)}
    watchdog = Watchdog(procedures)
    codes = watchdog._codes()
    assert codes == {one.__code__: "one"}
    assert watchdog._codes() is codes
    procedures["two"] = describe(two)
    assert watchdog._codes()[two.__code__] == "two"
