"""Both clients' face, and `AsyncClient` on both loops: dialling, cancellation, deadlines, closing. Real servers."""

import asyncio
import gc
import logging
import os
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rpcfast import (
    AsyncClient,
    Client,
    DeadlineExceeded,
    InternalError,
    InvalidParams,
    InvalidRequest,
    Limits,
    MethodNotFound,
    ParseError,
    ResourceExhausted,
    Server,
    Unavailable,
)
from rpcfast.server import new_event_loop
from tests import peers

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run an async function in a loop of each kind, its errors and leaks made loud."""

    def runner(work: Callable[[], Awaitable[Any]]) -> Any:
        with asyncio.Runner(loop_factory=new_event_loop(request.param)) as one:
            return one.run(asyncio.wait_for(work(), 30))

    return runner


@pytest.fixture
def server() -> Server:
    """A server that nobody serves yet."""
    return peers.fresh_server()


@pytest.fixture
def target(server: Server) -> Iterator[str]:
    """The server, served over TCP."""
    with peers.serving(server) as address:
        yield address


async def event(server: Server, name: str) -> None:
    """Wait for a procedure's event without blocking the loop."""
    assert await asyncio.to_thread(peers.event_of(server, name).wait, 5)


# ---- the face of both


def test_any_attribute_is_a_procedure(target: str) -> None:
    """Parameters go by position or by name, dotted names too; what Python itself asks for is no procedure."""
    with Client(target) as client:
        assert (client.sum(2, 3), client.sum(a=2, b=3), client.call("sum", 2, b := 3)) == (5, 5, 5)
        assert b == 3
        with pytest.raises(MethodNotFound, match=r"no\.such\.thing"):
            client.no.such.thing()
        with pytest.raises(AttributeError):
            client._private  # noqa: B018
        assert "sum" in repr(client.sum)


def test_parameters_are_not_mixed(target: str) -> None:
    """By position and by name in one call, and values that no codec carries, are TypeErrors at the caller."""
    with Client(target) as client:
        with pytest.raises(TypeError, match="not mixed"):
            client.sum(2, b=3)
        for value in (object(), 2**64):
            with pytest.raises(TypeError):
                client.sum(value, 1)
        assert client.sum(2, 3) == 5


def test_errors_keep_their_class(target: str) -> None:
    """Each failure is the class of its code, with its data."""
    with Client(target) as client:
        with pytest.raises(InvalidParams) as caught:
            client.sum("x", None)
        assert len(caught.value.data["errors"]) == 2
        with pytest.raises(InternalError, match="log says why") as failed:
            client.fail()
        assert "secret" not in str(failed.value)


def test_a_json_rpc_object_is_a_call(target: str) -> None:
    """An explicit request object is called; without an id it is a notification; anything else is InvalidRequest."""
    with Client(target) as client:
        assert client({"jsonrpc": "2.0", "method": "sum", "params": {"a": 2, "b": 3}, "id": 100}) == 5
        assert client({"jsonrpc": "2.0", "method": "sum", "params": [2, 3], "id": None}) == 5
        assert client({"jsonrpc": "2.0", "method": "sum", "params": [2, 3]}) is None
        for wrong in ({}, {"jsonrpc": "1.0", "method": "sum"}, {"jsonrpc": "2.0", "method": 1}):
            with pytest.raises(InvalidRequest):
                client({**wrong, "id": 1})


def test_result_type(target: str) -> None:
    """The result is decoded to `result_type`; one that does not fit is ParseError, and the connection goes on."""
    with Client(target) as client:
        assert client.call("sum", 2, 3, result_type=float) == 5.0
        with pytest.raises(ParseError):
            client.call("sum", 2, 3, result_type=str)
        assert client.sum(2, 3) == 5


@pytest.mark.parametrize("wrong", ["http://x", "tcp://", "exec:", "unix://x"])
def test_a_target_that_cannot_be_read(wrong: str) -> None:
    """A target is read when the client is made, not at its first call."""
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match=r"needs|unknown"):
            kind(wrong)


# ---- AsyncClient


def test_calls_share_a_connection(run: Run, target: str) -> None:
    """gather, TaskGroup, wait and as_completed over one client: all answers are right."""

    async def work() -> None:
        async with AsyncClient(target) as client:
            assert await asyncio.gather(*(client.sum(i, 1) for i in range(300))) == list(range(1, 301))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(client.sum(i, 2)) for i in range(20)]
            assert [task.result() for task in tasks] == list(range(2, 22))
            for first in asyncio.as_completed([client.sum(1, 1), client.sum(1, 1)]):
                assert await first == 2
            assert await client.blob(2_000_000) == bytes(2_000_000)
            assert len(client._kept.open) == 1

    run(work)


def test_first_calls_dial_once(run: Run, target: str) -> None:
    """Calls that find no connection share one dial; cancelling one of them costs the others nothing."""

    async def work() -> None:
        client = AsyncClient(target)
        tasks = [asyncio.ensure_future(client.sum(i, 0)) for i in range(10)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError)
        assert answers[1:] == list(range(1, 10))
        assert len(client._kept.open) == 1
        await client.close()

    run(work)


def test_a_failed_dial_reaches_all(run: Run) -> None:
    """All that waited get Unavailable, each its own exception object; the next call dials again."""

    async def work() -> None:
        client = AsyncClient("unix:///nowhere/at/all")
        first, second = await asyncio.gather(client.a(), client.b(), return_exceptions=True)
        assert isinstance(first, Unavailable)
        assert isinstance(second, Unavailable)
        assert first is not second
        with pytest.raises(Unavailable, match="is the server running"):
            await client.a()
        with pytest.raises(Unavailable):
            await AsyncClient("tcp://a..b:1").a()
        await client.close()

    run(work)


def test_a_lost_server_is_dialled_again(run: Run, tmp_path: Path) -> None:
    """Calls in flight fail with Unavailable when the connection is lost; the next one dials."""
    path = str(tmp_path / "s")

    async def work() -> None:
        async with AsyncClient(peers.child_target(tmp_path)) as client:
            pid = await client.pid()
            with pytest.raises(Unavailable, match="lost"):
                await client.die()
            assert await client.pid() != pid
            await asyncio.sleep(0)
            children = [child for child in client._kept.open.values() if child is not None]
            assert len(children) == 1
        with pytest.raises(ProcessLookupError):
            os.kill(children[0].pid, 0)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    run(work)
    assert not Path(path).exists()


def test_close_while_dialling(run: Run) -> None:
    """Those that wait for a connection get Unavailable, not CancelledError, when the client is closed."""
    started = threading.Event()

    @asynccontextmanager
    async def slow(_: Server) -> AsyncIterator[None]:
        started.set()
        await asyncio.sleep(20)
        yield

    async def work() -> None:
        client = AsyncClient(Server(lifespan=slow))
        call = asyncio.ensure_future(client.sum(1, 2))
        assert await asyncio.to_thread(started.wait, 5)
        await client.close()
        with pytest.raises(Unavailable, match="closed"):
            await call

    run(work)


def test_close_with_calls_in_flight(run: Run, server: Server, target: str) -> None:
    """They fail with Unavailable, their handlers are cancelled, closing twice is nothing, and no call goes after."""

    async def work() -> None:
        client = AsyncClient(target)
        calls = [asyncio.ensure_future(client.sleep(20, "s")) for _ in range(3)]
        await event(server, "s-began")
        await client.close()
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, Unavailable)
        await event(server, "s-cancelled")
        await client.close()
        with pytest.raises(Unavailable, match="closed"):
            await client.sum(1, 2)
        assert client._kept.open == {}

    run(work)


def test_a_second_loop_is_refused(run: Run, target: str) -> None:
    """A client that is used in another loop says so, whether the first one lives or not."""
    client = AsyncClient(target)

    async def first() -> None:
        assert await client.sum(1, 2) == 3

        def other() -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                asyncio.run(client.sum(1, 2))

        await asyncio.to_thread(other)
        await client.close()

    run(first)
    with pytest.raises(RuntimeError, match="another event loop"):
        run(lambda: client.sum(1, 2))


def test_a_call_may_be_made_from_another_thread(run: Run, target: str) -> None:
    """`run_coroutine_threadsafe(client.sum(...), loop)` runs in the loop, as for any coroutine."""

    async def work() -> None:
        async with AsyncClient(target) as client:
            loop = asyncio.get_running_loop()

            def other() -> int:
                return asyncio.run_coroutine_threadsafe(client.sum(1, 2), loop).result(5)

            assert await asyncio.to_thread(other) == 3

    run(work)


@pytest.mark.parametrize("how", ["cancel", "wait_for", "timeout", "call"])
def test_giving_up_cancels_the_handler(run: Run, server: Server, target: str, how: str) -> None:
    """Cancellation, wait_for, asyncio.timeout and the call's own timeout stop the handler at the server."""

    async def give_up(client: AsyncClient) -> None:
        if how == "cancel":
            task = asyncio.ensure_future(client.sleep(20, "s"))
            await event(server, "s-began")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif how == "wait_for":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.sleep(20, "s"), 0.1)
        elif how == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.sleep(20, "s")
        else:
            with pytest.raises(DeadlineExceeded):
                await client.call("sleep", 20, "s", timeout=0.1)

    async def work() -> None:
        async with AsyncClient(target) as client:
            await give_up(client)
            await event(server, "s-cancelled")
            assert await client.sum(2, 3) == 5
            assert len(client._connection.caller) == 0

    run(work)


def test_cancelled_and_failed_calls_are_silent(run: Run, target: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged about exceptions never retrieved, for calls cancelled, refused or cut off by close()."""

    async def work() -> None:
        client = AsyncClient(target)
        tasks = [asyncio.ensure_future(client.sleep(20)) for _ in range(5)]
        await client.sum(1, 2)
        for task in tasks[:3]:
            task.cancel()
        await client.close()
        await asyncio.wait(tasks)
        for task in tasks[3:]:
            task.exception()
        gone = AsyncClient("unix:///nowhere/at/all")
        dial = asyncio.ensure_future(gone.sum(1, 2))
        await asyncio.sleep(0)
        dial.cancel()
        await asyncio.wait([dial])
        await gone.close()

    with caplog.at_level(logging.WARNING):
        run(work)
        gc.collect()
    assert caplog.records == []


def test_held_calls_start_in_order(run: Run, server: Server, target: str) -> None:
    """Beyond max_in_flight calls are held back, and start oldest first; those cancelled or late meanwhile never do."""

    async def work() -> None:
        async with AsyncClient(target, limits=Limits(max_in_flight=1)) as client:
            first = asyncio.ensure_future(client.sleep(0.3, "first"))
            await event(server, "first-began")
            done: list[int] = []

            async def call(number: int) -> None:
                done.append(await client.sum(number, 0))

            held = [asyncio.ensure_future(call(number)) for number in range(5)]
            await asyncio.sleep(0)
            held[2].cancel()
            with pytest.raises(DeadlineExceeded):
                await client.call("note", "late", timeout=0.05)
            assert await first == "slept"
            await asyncio.wait(held)
            assert done == [0, 1, 3, 4]
            assert len(client._connection.caller) == 0
        assert not peers.event_of(server, "late").is_set()

    run(work)


def test_too_many_held_calls(run: Run, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held back is bounded: one more is ResourceExhausted at once."""
    monkeypatch.setattr("rpcfast.caller.MAX_HELD", 2)

    async def work() -> None:
        async with AsyncClient(target, limits=Limits(max_in_flight=1)) as client:
            tasks = [asyncio.ensure_future(client.sleep(0.2)) for _ in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(ResourceExhausted):
                await client.sum(1, 2)
            assert await asyncio.gather(*tasks) == ["slept"] * 3

    run(work)


def test_a_forgotten_client_warns(run: Run, target: str) -> None:
    """An AsyncClient that is dropped without close() says so by ResourceWarning; its connection is closed."""

    async def work() -> None:
        client = AsyncClient(target)
        await client.sum(1, 2)
        connection = client._connection
        with pytest.warns(ResourceWarning, match="unclosed <AsyncClient"):  # noqa: PT031  # it comes from either
            del client
            gc.collect()
        async with asyncio.timeout(5):
            while not connection.lost:  # a connection tells nobody else
                await asyncio.sleep(0)

    run(work)


# ---- a Server object as the target


def lifespan_server(seen: list[str]) -> Server:
    """A server whose lifespan uses a cancel scope, which must be left in the task that entered it."""

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        task = asyncio.current_task()
        seen.append("began")
        async with asyncio.timeout(60):
            yield
        assert asyncio.current_task() is task
        seen.append("ended")

    server = Server(lifespan=lifespan)

    @server
    def sum(a: int, b: int) -> int:
        return a + b

    @server
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)

    return server


def test_a_server_object_in_this_loop(run: Run) -> None:
    """No socket: the lifespan begins with the first call and ends with close(), in one task."""
    seen: list[str] = []

    async def work() -> None:
        async with AsyncClient(lifespan_server(seen)) as client:
            assert await asyncio.gather(*(client.sum(i, 1) for i in range(50))) == list(range(1, 51))
            assert seen == ["began"]
        assert seen == ["began", "ended"]

    run(work)


def test_a_server_object_for_threads() -> None:
    """`Client(server)`: calls from several threads, deadlines, and the lifespan's end with close()."""
    seen: list[str] = []
    with Client(lifespan_server(seen)) as client:
        threads = [threading.Thread(target=lambda: [client.sum(i, 1) for i in range(30)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.sum(2, 3) == 5
        with pytest.raises(DeadlineExceeded):
            client.call("sleep", 10, timeout=0.05)
    assert seen == ["began", "ended"]
    with pytest.raises(Unavailable, match="closed"):
        client.sum(1, 2)
    client.close()


def test_a_lifespan_that_fails(run: Run) -> None:
    """The call says why it is Unavailable; the next call tries again."""
    tries: list[int] = []

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("no database")
        yield

    async def work() -> None:
        server = Server(lifespan=lifespan)
        server(lambda_named_one)
        client = AsyncClient(server)
        with pytest.raises(Unavailable, match="no database"):
            await client.one()
        assert await client.one() == 1
        await client.close()

    def lambda_named_one() -> int:
        return 1

    lambda_named_one.__name__ = "one"
    run(work)


def test_data_that_is_shared_keeps_its_type(run: Run) -> None:
    """A custom decoder that raises what it likes fails its call, and only that one, at once."""

    class Odd(msgspec.Struct):
        value: int

        def __post_init__(self) -> None:
            raise KeyError("odd")

    async def work() -> None:
        server = Server()

        @server
        def odd() -> dict[str, int]:
            return {"value": 1}

        async with AsyncClient(server) as client:
            with pytest.raises((KeyError, ParseError)):
                await client.call("odd", result_type=Odd, timeout=5)
            assert await client.odd() == {"value": 1}

    run(work)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
