"""One run of a service: what it accepts, how it stops, and that nothing outlives it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rpcfast import AsyncClient, Limits, Server, serving
from rpcfast.errors import Unavailable
from rpcfast.transport import stream
from tests.services import JsonClient, connections, open_memory, open_stream, until


def make_server(**options: Any) -> tuple[Server, asyncio.Event]:
    """A server with a fast call, one that waits for the event, and one that ends badly."""
    server, go = Server(**options), asyncio.Event()

    @server
    def one() -> int:
        return 1

    @server
    async def wait() -> str:
        await go.wait()
        return "done"

    return server, go


async def test_lifespan_runs_around_everything() -> None:
    """It begins before the first call and ends after the last one."""
    order: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        order.append("begin")
        try:
            yield
        finally:
            order.append("end")

    server, _ = make_server(lifespan=lifespan)

    @server
    async def last() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            order.append("call")

    async with server.serving() as running:
        client = JsonClient(*await open_memory(running))
        call = asyncio.ensure_future(client.call("last"))
        await until(lambda: connections(running) and len(connections(running)[0].running))
    assert order == ["begin", "call", "end"]
    with pytest.raises(Unavailable):
        await call
    await client.close()


async def test_a_lifespan_that_fails_at_the_start_ends_it() -> None:
    """Its error is raised; no thread, no timer is left."""

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    server, _ = make_server(lifespan=lifespan)
    before = threading.active_count()
    with pytest.raises(OSError, match="no database"):
        async with server.serving():
            pass
    assert threading.active_count() <= before


async def test_a_lifespan_that_fails_at_the_end_is_heard() -> None:
    """Its error is raised after everything else was ended."""
    kept: list[Any] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        kept[0] = len(kept[0]._open)
        raise OSError("disk full")

    server, _ = make_server(lifespan=lifespan)

    async def serve() -> None:
        async with server.serving() as running:
            kept.append(running)
            client = JsonClient(*await open_memory(running))
            assert await client.call("one") == 1
        await client.close()

    with pytest.raises(OSError, match="disk full"):
        await serve()
    assert kept == [0]


async def test_a_step_that_fails_undoes_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the watchdog cannot start, the lifespan that was entered is left."""
    order: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        try:
            yield
        finally:
            order.append("end")

    def fail(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(serving.Watchdog, "start", fail)
    server, _ = make_server(lifespan=lifespan)
    with pytest.raises(RuntimeError, match="new thread"):
        async with server.serving():
            pass
    assert order == ["end"]


async def test_a_stop_waits_for_calls_in_flight() -> None:
    """Calls that run are answered; nothing new is accepted meanwhile."""
    server, go = make_server()
    async with server.serving() as running:
        client = JsonClient(*await open_memory(running))
        call = asyncio.ensure_future(client.call("wait"))
        await until(lambda: connections(running) and len(connections(running)[0].running))
        stopping = asyncio.ensure_future(running.stop(10))
        await asyncio.sleep(0)
        reader, _ = await open_memory(running)
        assert await reader.read() == b""
        with pytest.raises(Unavailable, match="takes no new calls"):
            await client.call("one")
        go.set()
        assert await call == "done"
        await stopping
    await client.close()


async def test_a_stop_closes_idle_and_silent_connections() -> None:
    """Neither a connection without a call nor one that has said nothing delays it."""
    server, _ = make_server()
    async with server.serving() as running:
        idle, silent = JsonClient(*await open_memory(running)), await open_memory(running)
        assert await idle.call("one") == 1
        began = asyncio.get_running_loop().time()
        await running.stop(10)
        assert asyncio.get_running_loop().time() - began < 1
        assert await silent[0].read() == b""
        assert not running._open
    await idle.close()


async def test_a_stop_does_not_wait_for_a_peer_that_does_not_read() -> None:
    """What a peer does not take within a second after the drain is lost; the connection is cut."""
    server, _ = make_server(limits=Limits(write_timeout=60))

    @server
    def bulk() -> bytes:
        return bytes(12_000_000)

    async with server.serving() as running:
        (sock,) = stream.listen_tcp("127.0.0.1", 0)
        await running.listen(sock)
        _, writer = await open_stream(f"tcp://127.0.0.1:{sock.getsockname()[1]}")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b'{"jsonrpc":"2.0","method":"bulk","id":1}\n')
        await until(lambda: connections(running) and connections(running)[0]._paused)
        began = asyncio.get_running_loop().time()
        await running.stop(0.05)
        assert 0.5 < asyncio.get_running_loop().time() - began < 5
    await until(lambda: not running._open)
    writer.close()


async def test_a_stop_that_is_cancelled_still_ends_everything() -> None:
    """Cancelled while it drains, leaving the block cancels the calls, closes the connections, stops the timer."""
    server, _ = make_server()

    async def run() -> None:
        async with server.serving() as running:
            kept.append(running)
            begun.set()
            await asyncio.Event().wait()

    kept: list[Any] = []
    begun = asyncio.Event()
    task = asyncio.ensure_future(run())
    await begun.wait()
    running = kept[0]
    client = JsonClient(*await open_memory(running))
    call = asyncio.ensure_future(client.call("wait"))
    await until(lambda: connections(running) and len(connections(running)[0].running))
    stop = asyncio.ensure_future(running.stop(60))
    await asyncio.sleep(0.02)
    stop.cancel()
    task.cancel()
    await asyncio.wait([stop, task])
    await until(lambda: not running._open)
    assert running._ticker.cancelled()
    with pytest.raises(Unavailable):
        await call
    await client.close()


async def test_a_tick_that_fails_does_not_end_the_ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next look at the connections comes all the same."""
    monkeypatch.setattr(serving, "TICK", 0.01)
    server, _ = make_server()
    looks: list[int] = []

    class Bad:
        busy = False

        def tick(self, now: float) -> None:
            looks.append(1)
            raise RuntimeError("one bad look")

        def __getattr__(self, name: str) -> Any:
            return lambda *_: []

    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with server.serving() as running:
        bad: Any = Bad()
        running.opened(bad)
        await until(lambda: len(looks) > 2)
        running.closed(bad)
    assert errors


async def test_the_first_byte_may_come_late_and_alone() -> None:
    """A protocol is known by its first byte; what follows may come byte by byte."""
    server, _ = make_server()
    async with server.serving() as running:
        reader, writer = await open_memory(running)
        for byte in b'\r\n {"jsonrpc":"2.0","method":"one","id":1}\n':
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert await reader.readline() == b'{"jsonrpc":"2.0","id":1,"result":1}\n'
        writer.close()
        await until(lambda: not running._open)


async def test_sockets_of_both_kinds_are_listened_on(tmp_path: Any) -> None:
    """TCP and a Unix socket at once, for the same service."""
    server, _ = make_server()
    async with server.serving() as running:
        (tcp,) = stream.listen_tcp("127.0.0.1", 0)
        unix = stream.listen_unix(str(tmp_path / "s"))
        for sock in (tcp, unix):
            await running.listen(sock)
        for address in (f"tcp://127.0.0.1:{tcp.getsockname()[1]}", f"unix://{tmp_path / 's'}"):
            client = JsonClient(*await open_stream(address))
            assert await client.call("one") == 1
            await client.close()


async def test_a_procedure_may_be_added_while_serving() -> None:
    """It is served at once, on connections that are open, over each protocol."""
    server, _ = make_server()
    async with server.serving() as running, AsyncClient(server) as client:
        json = JsonClient(*await open_memory(running))
        assert await json.call("one") == await client.one() == 1

        @server
        def two() -> int:
            return 2

        assert await json.call("two") == await client.two() == 2
        await json.close()


def test_connections_leave_descriptors_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most four fifths of the descriptors, unless there is no limit."""
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    assert serving._affordable(65_536) == 80
    assert serving._affordable(10) == 10
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert serving._affordable(65_536) == 65_536
