"""Handlers: the lanes of a procedure, its threads, and the words for what does not fit."""

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from rpcfast import Context, InvalidParams, Limits, ResourceExhausted, Server
from rpcfast.call import current_job
from rpcfast.errors import Cancelled, DeadlineExceeded, InternalError, Unavailable
from rpcfast.handlers import Job, Threads, refusal
from rpcfast.schema import describe
from rpcfast.testing import connect
from tests.services import until


async def test_every_place_of_the_context() -> None:
    """First, last, in the middle, keyword-only, in each lane: injected, and the other parameters as given."""
    server = Server()

    @server
    def first(ctx: Context, a: int) -> tuple[bool, int]:
        return isinstance(ctx, Context), a

    @server
    async def middle(a: int, ctx: Context, b: int = 2) -> tuple[bool, int, int]:
        return isinstance(ctx, Context), a, b

    @server(thread=True)
    def last(a: int, *, b: int = 3, ctx: Context) -> tuple[bool, int, int]:
        return isinstance(ctx, Context), a, b

    async with connect(server) as client:
        assert await client.first(1) == [True, 1]
        assert await client.first(a=1) == [True, 1]
        assert await client.middle(1) == await client.middle(b=2, a=1) == [True, 1, 2]
        assert await client.last(1) == await client.last(a=1) == [True, 1, 3]
        assert await client.last(a=1, b=4) == [True, 1, 4]


async def test_a_required_keyword_only_parameter_wants_its_name() -> None:
    """By position it is refused with a word on why."""
    server = Server()

    @server
    def named(a: int, *, b: int) -> int:
        return a - b

    async with connect(server) as client:
        assert await client.named(a=3, b=1) == 2
        with pytest.raises(InvalidParams, match="b"):
            await client.named(3)


def test_a_refusal_lists_all_and_says_three() -> None:
    """The message names three places and how many more there are; the data has them all."""

    def many(a: int, b: int, c: int, d: int, e: int) -> None: ...

    error = refusal(describe(many), {})
    assert error.message.startswith("many: $.a: ")
    assert error.message.endswith("(and 2 more)")
    assert len(error.data["errors"]) == 5


async def test_a_coroutine_that_does_not_wait_leaves_no_task() -> None:
    """It is never in flight on Python 3.12 and later; on 3.11 it is gone when its answer comes."""
    server = Server()
    tasks: list[int] = []

    @server
    async def fast(ctx: Context) -> None:
        tasks.append(len(ctx._sink.connection.running))

    async with connect(server) as client:
        before = asyncio.all_tasks()
        await client.fast()
        assert asyncio.all_tasks() == before
        assert tasks[0] <= 1


async def test_a_handler_that_raises_cancelled_itself_is_cancelled() -> None:
    """A CancelledError that nobody asked for is answered as Cancelled, and the call ends."""
    server = Server()

    @server
    async def gives_up() -> None:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    async with connect(server) as client:
        with pytest.raises(Cancelled):
            await client.gives_up()


async def test_a_late_result_of_a_handler_that_ignores_its_timeout_is_given() -> None:
    """What was done all the same is not thrown away."""
    server = Server()

    @server(timeout=0.02)
    async def insists() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return ""

    async with connect(server) as client:
        assert await client.insists() == "done all the same"


async def test_the_nearer_of_both_deadlines_holds() -> None:
    """The procedure's own timeout and the caller's: whichever ends first."""
    server = Server()

    @server(timeout=5.0)
    async def remaining(ctx: Context) -> float:
        assert ctx.deadline is not None
        return ctx.deadline.remaining()

    @server(timeout=0.02)
    async def short() -> None:
        await asyncio.Event().wait()

    async with connect(server) as client:
        assert 4.0 < await client.remaining() <= 5.0
        assert 0.5 < await client.call("remaining", timeout=1.0) <= 1.0
        with pytest.raises(DeadlineExceeded):
            await client.call("short", timeout=10.0)


async def test_a_thread_hears_that_nobody_waits() -> None:
    """`ctx.cancelled()` turns true in the thread when its call is cancelled, and it stops by itself."""
    server = Server()
    begun, heard = threading.Event(), threading.Event()

    @server(thread=True)
    def works(ctx: Context) -> None:
        assert not ctx.cancelled()
        begun.set()
        while not ctx.cancelled():
            heard.wait(0.005)
        heard.set()

    async with connect(server) as client:
        call = asyncio.ensure_future(client.works())
        await until(begun.is_set)
        call.cancel()
        await until(heard.is_set)


async def test_a_cancelled_thread_keeps_its_place_in_max_concurrency() -> None:
    """The next call waits until the thread is done, not only until its caller has gone."""
    server = Server()
    go, inside = threading.Event(), []

    @server(thread=True, max_concurrency=1)
    def alone(number: int) -> int:
        inside.append(number)
        go.wait(5)
        return number

    async with connect(server) as client:
        one = asyncio.ensure_future(client.alone(1))
        await until(lambda: inside == [1])
        one.cancel()
        two = asyncio.ensure_future(client.alone(2))
        await asyncio.sleep(0.03)
        assert inside == [1]
        go.set()
        assert await two == 2


async def test_a_cancelled_call_gives_its_turn_on() -> None:
    """A coroutine that waits for its turn under max_concurrency and is cancelled takes nobody's."""
    server = Server()
    go = asyncio.Event()

    @server(max_concurrency=1)
    async def alone() -> int:
        await go.wait()
        return 1

    async with connect(server) as client:
        calls = [asyncio.ensure_future(client.alone()) for _ in range(3)]
        await asyncio.sleep(0)
        calls[1].cancel()
        go.set()
        assert await calls[0] == await calls[2] == 1


async def test_threads_carry_the_callers_context() -> None:
    """Context variables that hold where a job is made hold in its thread; what it sets stays there."""
    variable: ContextVar[str] = ContextVar("variable", default="none")
    variable.set("mine")

    def work() -> tuple[str, bool]:
        seen = variable.get()
        variable.set("changed")
        return seen, current_job.get() is job

    threads = Threads(Limits())
    job = Job(work, ())
    assert await threads.run(job) == ("mine", True)
    assert variable.get() == "mine"
    assert current_job.get() is None
    threads.close()


async def test_a_job_that_nobody_wants_is_not_run() -> None:
    """It passes through its thread without a word."""
    ran: list[int] = []
    job = Job(ran.append, (1,))
    job.wanted = False
    assert job() is None
    assert ran == []


async def test_a_full_pool_refuses() -> None:
    """Beyond the threads and the queue; when one is done there is room."""
    threads, go = Threads(Limits(max_threads=1, max_waiting=1)), threading.Event()
    futures = [threads.run(lambda: go.wait(5)) for _ in range(2)]
    with pytest.raises(ResourceExhausted, match="1 calls wait"):
        threads.run(lambda: None)
    go.set()
    await asyncio.gather(*futures)
    assert threads.busy == 0
    await threads.run(lambda: None)
    threads.close()
    threads.close()


async def test_what_a_thread_raises_is_taken_though_nobody_waits() -> None:
    """No future complains of an exception that was never retrieved."""
    server = Server()
    go, done = threading.Event(), threading.Event()

    @server(thread=True)
    def fails() -> None:
        try:
            go.wait(5)
            raise OSError("unheard")
        finally:
            done.set()

    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with connect(server) as client:
        call = asyncio.ensure_future(client.fails())
        await asyncio.sleep(0.02)
        call.cancel()
        await asyncio.wait([call])
        go.set()
        await until(done.is_set)
        await asyncio.sleep(0.01)
    assert complaints == []


async def test_a_plain_function_that_raises_cancelled_is_an_internal_error() -> None:
    """Nobody cancelled it: it is an exception like another, and logged."""
    server = Server()

    @server
    def odd() -> None:
        raise asyncio.CancelledError

    async with connect(server) as client:
        with pytest.raises(InternalError):
            await client.odd()


async def test_a_closed_pool_stays_closed() -> None:
    """A job that comes after the end is refused: a new pool would have nobody to end it."""
    threads = Threads(Limits())
    threads.close()
    with pytest.raises(Unavailable):
        threads.run(lambda: None)
