"""The three lanes of a call: signatures, threads and their bounds, gates, timeouts, and what a refusal says."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import msgspec
import pytest

from rpcfast import (
    Context,
    DeadlineExceeded,
    InternalError,
    InvalidParams,
    Limits,
    ResourceExhausted,
    Server,
    Unavailable,
)
from rpcfast.call import current_context
from rpcfast.handlers import Threads, refusal
from rpcfast.schema import describe
from rpcfast.testing import connect
from rpcfast.wire.events import Kind
from rpcfast.wire.native import pack_call, pack_frame
from tests.ends import pack, serving_end
from tests.services import JsonClient, open_memory

LANES = ("inline", "coroutine", "thread")
by_lane = pytest.mark.parametrize("lane", LANES)


def in_lane(server: Server, lane: str, function: Callable[..., Any], **options: Any) -> None:
    """Register a plain function so that it runs in a lane."""

    @wraps(function)
    async def later(*args: Any, **params: Any) -> Any:
        return function(*args, **params)

    server(thread=lane == "thread", **options)(later if lane == "coroutine" else function)


@asynccontextmanager
async def client_of(server: Server, protocol: str) -> AsyncIterator[Any]:
    """A client with `call(name, …)`, of native frames or of JSON-RPC."""
    if protocol == "native":
        async with connect(server) as client:
            yield client
        return
    async with server.serving() as serving:
        json = JsonClient(*await open_memory(serving))
        yield json
        await json.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What threads wait for; open in the end, so that none is left behind."""
    event = threading.Event()
    yield event
    event.set()


# ---- where each lane runs


async def test_a_plain_function_runs_within_the_read() -> None:
    """It runs in the loop's thread, in no task, and is answered before the read ends."""
    server = Server()

    @server
    def where() -> tuple[bool, bool]:
        return threading.current_thread() is threading.main_thread(), asyncio.current_task() is None

    async with serving_end(server) as (connection, peer):
        peer.send(pack_call(1, b"where", b"\x90"))
        assert await peer.next() == (Kind.RESULT, 1, [True, True])
        assert not connection.running


async def test_a_coroutine_runs_in_a_task_of_its_own() -> None:
    """Two calls of one read run in two tasks of the loop's thread; each is in flight while it waits."""
    server, go, tasks = Server(), asyncio.Event(), set()

    @server
    async def where() -> bool:
        tasks.add(asyncio.current_task())
        await go.wait()
        return threading.current_thread() is threading.main_thread()

    async with serving_end(server) as (connection, peer):
        peer.send(pack_call(1, b"where", b"\x90"), pack_call(2, b"where", b"\x90"))
        assert await peer.quiet()
        assert list(connection.running) == [1, 2]
        go.set()
        assert await peer.next() == (Kind.RESULT, 1, True)
        assert await peer.next() == (Kind.RESULT, 2, True)
        assert len(tasks) == 2
        assert not connection.running


@pytest.mark.skipif(sys.version_info < (3, 12), reason="3.11 has no eager tasks")
async def test_a_coroutine_that_never_waits_is_answered_in_its_turn() -> None:
    """It is done within the read, so that its answer stands before that of a plain function called after it."""
    server = Server()

    @server
    async def first() -> int:
        return 1

    @server
    def second() -> int:
        return 2

    async with serving_end(server) as (_, peer):
        peer.send(pack_call(1, b"first", b"\x90"), pack_call(2, b"second", b"\x90"))
        assert [(await peer.next())[2], (await peer.next())[2]] == [1, 2]


async def test_a_thread_lets_the_loop_go_on(gate: threading.Event) -> None:
    """While a function with thread=True blocks, a plain function of the same connection is answered."""
    server = Server()

    @server(thread=True)
    def block() -> str:
        gate.wait(5)
        return threading.current_thread().name

    @server
    def let_go() -> None:
        gate.set()

    async with connect(server) as client:
        blocked = asyncio.ensure_future(client.block())
        await client.let_go()
        assert (await blocked).startswith("rpcfast")


# ---- signatures: each gives (a, b, whether a context came)


def context_first(ctx: Context, a: int, b: int = 2) -> Any:
    """Take the context first."""
    return a, b, isinstance(ctx, Context)


def context_between(a: int, ctx: Context, b: int = 2) -> Any:
    """Take the context between."""
    return a, b, isinstance(ctx, Context)


def context_last(a: int, b: int = 2, ctx: Context = None) -> Any:  # type: ignore[assignment]
    """Take the context last, with a default that is never used."""
    return a, b, isinstance(ctx, Context)


def context_by_name(a: int, b: int = 2, *, ctx: Context) -> Any:
    """Take the context as a keyword-only parameter."""
    return a, b, isinstance(ctx, Context)


def context_after_slash(a: int, /, ctx: Context, b: int = 2) -> Any:
    """Take the context after a positional-only parameter."""
    return a, b, isinstance(ctx, Context)


def slash(a: int, b: int = 2, /) -> Any:
    """Take positional-only parameters."""
    return a, b, False


def star(a: int, *, b: int = 2) -> Any:
    """Take a keyword-only parameter."""
    return a, b, False


def star_with_context(a: int, *, ctx: Context, b: int = 2) -> Any:
    """Take a keyword-only parameter after a keyword-only context."""
    return a, b, isinstance(ctx, Context)


def context_before_star(ctx: Context, a: int, *, b: int = 2) -> Any:
    """Take a keyword-only parameter and a positional context."""
    return a, b, isinstance(ctx, Context)


def only_names(*, b: int = 2, a: int) -> Any:
    """Take nothing by position."""
    return a, b, False


FREE = (context_first, context_between, context_last, context_by_name, context_after_slash, slash)
STARRED = (star, star_with_context, context_before_star)


@pytest.mark.parametrize("protocol", ["native", "jsonrpc"])
@by_lane
async def test_each_signature_gets_its_values(lane: str, protocol: str) -> None:
    """Defaults fill in, names go to their parameters, and the context is there and never counted, in each lane."""
    server = Server()
    for function in (*FREE, *STARRED, only_names):
        in_lane(server, lane, function)
    async with client_of(server, protocol) as client:
        for function in (*FREE, *STARRED, only_names):
            name, has_context = function.__name__, "context" in function.__name__
            assert await client.call(name, a=1) == [1, 2, has_context], name
            assert await client.call(name, b=5, a=1) == [1, 5, has_context], name
        for function in (*FREE, *STARRED):
            assert await client.call(function.__name__, 1) == [1, 2, "context" in function.__name__]
        for function in FREE:
            assert await client.call(function.__name__, 1, 5) == [1, 5, "context" in function.__name__]


@by_lane
async def test_a_keyword_only_parameter_is_not_taken_by_position(lane: str) -> None:
    """A value too many by position, and a required keyword-only parameter without its name, are InvalidParams."""
    server = Server()
    for function in (*STARRED, only_names):
        in_lane(server, lane, function)
    async with connect(server) as client:
        for function in STARRED:
            with pytest.raises(InvalidParams, match=function.__name__):
                await client.call(function.__name__, 1, 5)
        with pytest.raises(InvalidParams, match="only_names"):
            await client.call("only_names", 1)


@by_lane
async def test_the_context_is_no_parameter(lane: str) -> None:
    """A caller cannot give it, by name or by position."""
    server = Server()
    in_lane(server, lane, context_first)
    async with connect(server) as client:
        with pytest.raises(InvalidParams, match="ctx"):
            await client.call("context_first", a=1, ctx=None)
        with pytest.raises(InvalidParams):
            await client.call("context_first", None, 1, 2)


# ---- what goes wrong


@pytest.mark.parametrize("protocol", ["native", "jsonrpc"])
@by_lane
async def test_stop_iteration_is_answered(lane: str, protocol: str) -> None:
    """StopIteration, which coroutines and futures treat as their own, is an InternalError like any exception."""
    server = Server()

    def stops() -> int:
        raise StopIteration(1)

    in_lane(server, lane, stops)
    async with client_of(server, protocol) as client:
        with pytest.raises(InternalError, match="stops failed"):
            await client.call("stops")


def three(a: int, b: int, c: int, d: int) -> None:
    """Take four numbers."""


def test_a_refusal_names_three_places_and_lists_all() -> None:
    """Its text opens with the procedure, gives three errors and how many more there are; its data has every one."""
    error = refusal(describe(three), {"a": "x", "b": None, "e": 1})
    assert error.message.startswith("three: $.a: ")
    assert error.message.count(";") == 2
    assert error.message.endswith("(and 2 more)")
    assert [item["path"] for item in error.data["errors"]] == ["$.a", "$.b", "$.c", "$.d", "$.e"]


def test_a_refusal_of_few_places_names_them_all() -> None:
    """Up to three errors stand in its text in full."""
    error = refusal(describe(three), [1, 2, 3, "x"])
    assert "more)" not in error.message
    assert [item["loc"] for item in error.data["errors"]] == [["d"]]


def test_a_refusal_without_a_finding_gives_its_cause() -> None:
    """When nothing is found wrong with the values, what the decoder said is told."""
    error = refusal(describe(three), [1, 2, 3, 4], msgspec.ValidationError("Expected `int` - at `$[1]`"))
    assert error.message.startswith("three: $.b: ")
    assert len(error.data["errors"]) == 1


async def test_bytes_that_are_none_are_refused_with_the_reason() -> None:
    """Parameters that cannot be read at all are InvalidParams that says so, in every lane."""
    server = Server()
    for lane in LANES:

        def takes(a: int) -> int:
            return a

        in_lane(server, lane, takes, name=lane)
    async with serving_end(server) as (_, peer):
        for number, lane in enumerate(LANES, 1):
            peer.send(pack_call(number, lane.encode(), b"\xc1"))
            kind, call_id, body = await peer.next()
            assert (kind, call_id, body.code) == (Kind.ERROR, number, InvalidParams.code)
            assert body.message.startswith(f"{lane}: the parameters cannot be read: ")
            assert len(body.data["errors"]) == 1


# ---- threads


async def test_the_pool_takes_what_runs_and_what_may_wait(gate: threading.Event) -> None:
    """With one thread and one place to wait, the third job is ResourceExhausted; when they end, there is room again."""
    threads = Threads(Limits(max_threads=1, max_waiting=1))
    first, second = threads.run(lambda: gate.wait(5)), threads.run(lambda: 2)
    with pytest.raises(ResourceExhausted, match=r"^1 calls wait for a thread already$"):
        threads.run(lambda: 3)
    assert threads.busy == 2
    gate.set()
    assert await asyncio.gather(first, second) == [True, 2]
    assert await threads.run(lambda: 4) == 4
    await asyncio.sleep(0)  # its callback comes after what awaited it
    assert threads.busy == 0
    threads.close()


async def test_a_pool_that_is_closed_drops_what_waits(gate: threading.Event) -> None:
    """close() lets the running job end, cancels the one that waits, and takes no more."""
    began = threading.Event()
    threads = Threads(Limits(max_threads=1))

    def block() -> int:
        began.set()
        gate.wait(5)
        return 1

    first, second = threads.run(block), threads.run(lambda: 2)
    await asyncio.to_thread(began.wait, 5)
    threads.close()
    gate.set()
    assert await first == 1
    with pytest.raises(asyncio.CancelledError):
        await second
    with pytest.raises(Unavailable, match="the server has stopped"):
        threads.run(lambda: 3)


async def test_a_full_pool_refuses_a_call_of_any_connection(gate: threading.Event) -> None:
    """The bound is the server's: what one connection uses, another one lacks, whatever it speaks."""
    server = Server(limits=Limits(max_threads=1, max_waiting=1))

    @server(thread=True)
    def block() -> None:
        gate.wait(5)

    @server
    def ping() -> None:
        pass

    async with server.serving() as serving:
        one, other = [JsonClient(*await open_memory(serving)) for _ in range(2)]
        calls = [asyncio.ensure_future(one.call("block")) for _ in range(2)]
        await one.call("ping")
        await one.call("ping")
        with pytest.raises(ResourceExhausted, match="wait for a thread"):
            await other.call("block")
        gate.set()
        assert await asyncio.gather(*calls) == [None, None]
        await one.close()
        await other.close()


async def test_a_job_nobody_waits_for_is_not_begun(gate: threading.Event) -> None:
    """A call that is cancelled while it waits for a thread never runs its function."""
    server, began, ran = Server(), threading.Event(), []

    @server(thread=True)
    def block() -> None:
        began.set()
        gate.wait(5)

    @server(thread=True)
    def note(text: str) -> None:
        ran.append(text)

    async with serving_end(server, max_threads=1) as (connection, peer):
        peer.send(pack_call(1, b"block", b"\x90"), pack_call(2, b"note", pack("never")))
        await asyncio.to_thread(began.wait, 5)
        assert await peer.quiet()
        peer.send(pack_frame(Kind.CANCEL, 2), pack_call(3, b"note", pack("later")))
        assert await peer.quiet()
        gate.set()
        assert await peer.next() == (Kind.RESULT, 1, None)
        assert await peer.next() == (Kind.RESULT, 3, None)
        assert ran == ["later"]
        assert connection.max_in_flight == connection.limits.max_in_flight


async def test_a_cancelled_thread_keeps_its_place_until_it_ends(gate: threading.Event) -> None:
    """Its call is over at once, yet it counts against the connection's calls in flight; then it does no more."""
    server, began, ended = Server(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @server(thread=True)
    def block(ctx: Context) -> None:
        began.set()
        gate.wait(5)
        loop.call_soon_threadsafe(ended.set if ctx.cancelled() else print)

    @server
    async def wait() -> int:
        await asyncio.sleep(0)
        return 5

    async with serving_end(server, max_in_flight=1) as (connection, peer):
        peer.send(pack_call(1, b"block", b"\x90"))
        await asyncio.to_thread(began.wait, 5)
        peer.send(pack_frame(Kind.CANCEL, 1))
        assert await peer.quiet()
        assert not connection.running
        peer.send(pack_call(2, b"wait", b"\x90"))
        assert await peer.error() == (2, ResourceExhausted.code)
        gate.set()
        await asyncio.wait_for(ended.wait(), 5)
        async with asyncio.timeout(5):
            while connection.max_in_flight == 0:  # noqa: ASYNC110  # the thread's future tells nobody else
                await asyncio.sleep(0)
        peer.send(pack_call(3, b"wait", b"\x90"))
        assert await peer.next() == (Kind.RESULT, 3, 5)


VARIABLE: ContextVar[str] = ContextVar("variable", default="unset")


async def test_context_variables_of_threads_stay_in_their_call() -> None:
    """A thread has its call's variables; what it sets is gone with it, although the thread is used again."""
    server = Server(limits=Limits(max_threads=1))

    @server(thread=True)
    def change(value: str) -> tuple[str, str, str]:
        before = VARIABLE.get()
        VARIABLE.set(value)
        return before, VARIABLE.get(), current_context().metadata.get("tenant", "")

    async with connect(server) as client:
        assert await client.call("change", "one", metadata={"tenant": "7"}) == ["unset", "one", "7"]
        assert await client.call("change", "two", metadata={"tenant": "8"}) == ["unset", "two", "8"]


# ---- max_concurrency


async def test_a_gate_lets_coroutines_through_in_order() -> None:
    """No more than max_concurrency run at once, and those that wait begin as they came."""
    server, begun, inside, most = Server(), [], 0, 0

    @server(max_concurrency=2)
    async def narrow(number: int) -> None:
        nonlocal inside, most
        begun.append(number)
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1

    async with connect(server) as client:
        await asyncio.gather(*(client.narrow(number) for number in range(9)))
    assert (begun, most) == (list(range(9)), 2)


async def test_a_gate_holds_for_all_protocols_together() -> None:
    """A call by JSON-RPC waits for one that came by native frames."""
    server, go, began = Server(), asyncio.Event(), asyncio.Queue()

    @server(max_concurrency=1)
    async def narrow(who: str) -> str:
        began.put_nowait(who)
        await go.wait()
        return who

    @server
    def ping() -> None:
        pass

    async with server.serving() as serving:
        native = serving.runtime.native("msgpack").handlers[b"narrow"]
        json = JsonClient(*await open_memory(serving))
        async with serving_end(server) as (connection, _):
            native(1, pack("native"), connection)  # the handler of the run that serves JSON-RPC too
            assert await began.get() == "native"
            waiting = asyncio.ensure_future(json.call("narrow", "json"))
            await json.call("ping")
            assert began.empty()
            go.set()
            assert await waiting == "json"
        await json.close()


async def test_a_cancelled_thread_stays_in_its_gate(gate: threading.Event) -> None:
    """The next one begins when the thread is done, not when its caller left."""
    server, began = Server(), threading.Event()

    @server(thread=True, max_concurrency=1)
    def narrow(wait: bool) -> str:
        began.set()
        return str(gate.wait(5) if wait else gate.is_set())

    async with serving_end(server) as (connection, peer):
        peer.send(pack_call(1, b"narrow", pack(True)))
        await asyncio.to_thread(began.wait, 5)
        began.clear()
        peer.send(pack_frame(Kind.CANCEL, 1), pack_call(2, b"narrow", pack(False)))
        assert await peer.quiet()
        assert list(connection.running) == [2]
        assert not began.is_set()
        gate.set()
        assert await peer.next() == (Kind.RESULT, 2, "True")


async def test_a_full_pool_leaves_the_gate_open(gate: threading.Event) -> None:
    """A call that found no thread gives its place in the gate back."""
    server = Server()

    @server(thread=True)
    def block() -> None:
        gate.wait(5)

    @server(thread=True, max_concurrency=1)
    def narrow() -> int:
        return 1

    async with serving_end(server, max_threads=1, max_waiting=1) as (_, peer):
        peer.send(pack_call(1, b"block", b"\x90"), pack_call(2, b"block", b"\x90"))
        for number in (3, 4):
            peer.send(pack_call(number, b"narrow", b"\x90"))
            assert await peer.error() == (number, ResourceExhausted.code)
        gate.set()
        assert await peer.next() == (Kind.RESULT, 1, None)
        assert await peer.next() == (Kind.RESULT, 2, None)
        peer.send(pack_call(5, b"narrow", b"\x90"))
        assert await peer.next() == (Kind.RESULT, 5, 1)


# ---- timeouts


@pytest.mark.parametrize("lane", ["coroutine", "thread"])
async def test_a_procedures_timeout_ends_its_call(lane: str, gate: threading.Event) -> None:
    """A call that waits longer is DeadlineExceeded; a thread goes on, and is told that nobody waits."""
    server, told = Server(), threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.set()

    def blocks(ctx: Context) -> None:
        gate.wait(5)
        if ctx.cancelled():
            told.set()

    server(name="slow", timeout=0.01, thread=lane == "thread")(blocks if lane == "thread" else forever)
    async with connect(server) as client:
        with pytest.raises(DeadlineExceeded, match="the deadline passed before the call was done"):
            await client.slow()
        gate.set()
        assert await asyncio.to_thread(told.wait, 5)


@by_lane
async def test_the_nearer_of_both_timeouts_holds(lane: str) -> None:
    """The context's deadline is the procedure's, unless the caller's own comes first."""
    server = Server()

    def left(ctx: Context) -> tuple[float, float]:
        mine, below = ctx.deadline, current_context().deadline
        assert mine is not None
        assert below is not None
        return mine.remaining(), below.remaining()

    in_lane(server, lane, left, timeout=50.0)
    async with connect(server) as client:
        for timeout, nearest in ((None, 50), (20.0, 20), (90.0, 50)):
            for seconds in await client.call("left", timeout=timeout):
                assert nearest - 10 < seconds <= nearest


async def test_a_timeout_leaves_nothing_behind_in_the_read() -> None:
    """The call after one with a timeout of its own, in the same read, has no deadline."""
    server = Server()

    @server(timeout=50.0)
    def bounded() -> bool:
        return current_context().deadline is not None

    @server
    def free() -> bool:
        return current_context().deadline is not None

    async with serving_end(server) as (_, peer):
        peer.send(pack_call(1, b"bounded", b"\x90"), pack_call(2, b"free", b"\x90"))
        assert [await peer.next(), await peer.next()] == [(Kind.RESULT, 1, True), (Kind.RESULT, 2, False)]


# ---- calls in flight


@pytest.mark.parametrize("lane", ["coroutine", "thread"])
async def test_calls_in_flight_are_bounded(lane: str, gate: threading.Event) -> None:
    """One call more than max_in_flight is ResourceExhausted that says how many run; what runs is not harmed."""
    server, go = Server(), asyncio.Event()

    async def waits() -> str:
        await go.wait()
        return "done"

    def blocks() -> str:
        gate.wait(5)
        return "done"

    server(name="slow", thread=lane == "thread")(blocks if lane == "thread" else waits)
    async with serving_end(server, max_in_flight=2) as (_, peer):
        peer.send(*(pack_call(number, b"slow", b"\x90") for number in (1, 2, 3)))
        kind, call_id, body = await peer.next()
        assert (kind, call_id, body.code) == (Kind.ERROR, 3, ResourceExhausted.code)
        assert body.message == "2 calls of this connection are in flight already"
        go.set()
        gate.set()
        assert {await peer.next() for _ in range(2)} == {(Kind.RESULT, 1, "done"), (Kind.RESULT, 2, "done")}


async def test_json_rpc_may_use_an_id_again() -> None:
    """Two calls with one id run beside each other, and both are answered."""
    server, go = Server(), asyncio.Event()

    @server
    async def wait(value: int) -> int:
        await go.wait()
        return value

    @server
    def let_go() -> None:
        go.set()

    async with server.serving() as serving:
        reader, writer = await open_memory(serving)
        for name, params in (("wait", "[1]"), ("wait", "[2]"), ("let_go", "[]")):
            writer.write(f'{{"jsonrpc":"2.0","method":"{name}","params":{params},"id":7}}\n'.encode())
        answers = {await reader.readline() for _ in range(3)}
        assert answers == {b'{"jsonrpc":"2.0","id":7,"result":%s}\n' % text for text in (b"1", b"2", b"null")}
        writer.close()
