"""One procedure compiled for one protocol and codec; floor 3: all that can be known beforehand is looked up here.

A handler is `handle(call_id, payload, sink)`. It decodes, calls, and queues the answer in `sink.out`, or leaves that
to a task. What it raises, its connection answers. There are three lanes: plain functions inline, coroutines in an
eager task, `thread=True` in a bounded pool.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import Task
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import astuple

from rpcfast.call import Call, Context, Sink, current_job, current_sink, earliest
from rpcfast.errors import DECODE_ERRORS, InvalidParams, ResourceExhausted, RPCError, Unavailable
from rpcfast.limits import Limits
from rpcfast.schema import ProcedureSpec, decode_custom
from rpcfast.validation import explain, from_message

__all__ = ["Gates", "Handler", "Threads", "Wire", "compile_handler", "refusal"]

Handler: TypeAlias = Callable[[Any, Any, Any], None]
Answer: TypeAlias = Callable[[Any, Any, Any], None]


class Wire(NamedTuple):
    """What a protocol and codec do for one procedure."""

    typed: Callable[[Any], Any]
    """Payload to typed parameters."""
    lenient: Callable[[Any], Any]
    """Payload to parameters as builtins, for the error message."""
    answer: Answer
    """`(sink, call id, result)`: queue the answer."""
    inline: Callable[..., Handler]
    """`(explain, function)`: the handler of a plain function, in one piece."""


class Job:
    """One call on its way through the pool. Its context variables are those of its caller."""

    def __init__(self, function: Callable[..., Any], values: tuple[Any, ...]) -> None:
        self.wanted = True
        self._function = function
        self._values = values
        self._context = copy_context()
        self._context.run(current_job.set, self)

    def __call__(self) -> Any:
        """Run, unless the caller went while this waited for a thread."""
        if not self.wanted:
            return None
        try:
            return self._context.run(self._function, *self._values)
        except StopIteration as error:  # a future refuses it, and would never be done
            raise RuntimeError("a procedure raised StopIteration") from error


class Threads:
    """A pool of threads for blocking handlers, with a bound on what waits for it. Started by its first call."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        self.busy = 0
        """Handlers that run or wait, those included whose caller is gone."""

    def run(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `job()` in a thread; raises `ResourceExhausted` when full, `Unavailable` when closed."""
        if self.busy >= self._limits.max_threads + self._limits.max_waiting:
            raise ResourceExhausted(f"{self._limits.max_waiting} calls wait for a thread already")
        if self._pool is None:
            if self._closed:
                raise Unavailable("the server has stopped")
            self._pool = ThreadPoolExecutor(self._limits.max_threads, thread_name_prefix="rpcfast")
        future = asyncio.get_running_loop().run_in_executor(self._pool, job)
        self.busy += 1
        future.add_done_callback(self._done)
        return future

    def _done(self, future: asyncio.Future[Any]) -> None:
        self.busy -= 1
        if not future.cancelled():
            future.exception()  # its caller may be gone; then nobody else would take it

    def close(self) -> None:
        """Start nothing more. A handler that runs is left to end by itself: a thread cannot be stopped."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


Gates: TypeAlias = dict[str, asyncio.Semaphore]
"""By procedure: what `max_concurrency` lets through, whichever protocol and codec a call came by."""


def compile_handler(spec: ProcedureSpec, wire: Wire, threads: Threads, gates: Gates) -> Handler:
    """Choose the lane of a procedure and bind everything to it."""
    invoke = _invoker(spec)
    gate = gates.setdefault(spec.name, asyncio.Semaphore(spec.max_concurrency)) if spec.max_concurrency else None
    if spec.is_async:
        handler = _in_task(spec, wire, invoke if gate is None else _gated(invoke, gate))
    elif spec.thread:
        handler = _in_task(spec, wire, _threaded(invoke, threads, gate))
    else:
        handler = _inline(spec, wire, invoke)
    return handler if spec.timeout is None else _with_timeout(handler, spec.timeout)


def refusal(spec: ProcedureSpec, value: Any, cause: Exception | None = None) -> InvalidParams:
    """The error that lists everything wrong with `value`, which is parameters read as builtins."""
    errors = explain(spec.parameters, value, dec_hook=decode_custom)
    if not errors and cause is not None:
        errors = [from_message(cause, spec.parameters)]
    places = "; ".join(f"{error['path']}: {error['message']}" for error in errors[:3])
    more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""  # noqa: PLR2004  # as many as a line holds
    return InvalidParams(f"{spec.name}: {places}{more}", data={"errors": errors})


def _values_of(spec: ProcedureSpec, wire: Wire) -> Callable[[Any], tuple[Any, ...]]:
    """How a payload becomes the values of the parameters, in order."""
    typed, plain, explain = wire.typed, spec.plain, _explainer(spec, wire)

    def values(payload: Any) -> tuple[Any, ...]:
        try:
            params = typed(payload)
            if type(params) is not tuple:
                return astuple(params)
            positional: tuple[Any, ...] = params  # pyright: ignore[reportUnknownVariableType]
            return positional if plain else astuple(_by_position(spec, positional))
        except DECODE_ERRORS as error:
            raise explain(payload, error) from None

    return values


def _by_position(spec: ProcedureSpec, params: tuple[Any, ...]) -> Any:
    """Fill in defaults: what was given by position, and the keyword-only parameters' own."""
    given = msgspec.convert(params, spec.positional, dec_hook=decode_custom, str_keys=True)
    keyword_only = [p for p in spec.parameters if p.keyword_only]
    if not keyword_only:
        return given
    if any(p.required for p in keyword_only):
        raise msgspec.ValidationError("keyword-only parameters must be given by name")
    return spec.by_name(**msgspec.structs.asdict(given))


def _explainer(spec: ProcedureSpec, wire: Wire) -> Callable[[Any, Exception], InvalidParams]:
    """What is wrong with a payload that its types refused."""

    def explain(payload: Any, error: Exception) -> InvalidParams:
        try:
            value = wire.lenient(payload)
        except DECODE_ERRORS as reason:
            text = f"{spec.name}: the parameters cannot be read: {reason}"
            return InvalidParams(text, data={"errors": [from_message(reason)]})
        return refusal(spec, value, error)

    return explain


def _invoker(spec: ProcedureSpec) -> Callable[..., Any]:
    """`invoke(*values)` calls the function, with keyword-only parameters by name.

    When the function wants its context it is `invoke(context, *values)`.
    """
    function, injected, place = spec.function, spec.injected, spec.injected_at
    names = tuple(p.name for p in spec.parameters if p.keyword_only)
    split = len(spec.parameters) - len(names)

    def named(values: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(names, values[split:], strict=True))

    def with_names(*values: Any) -> Any:
        return function(*values[:split], **named(values))

    def with_context(context: Context, *values: Any) -> Any:
        return function(*values[:place], context, *values[place:split], **named(values))

    def with_named_context(context: Context, *values: Any) -> Any:
        return function(*values[:split], **{str(injected): context}, **named(values))

    if injected is None:
        return with_names if names else function
    return with_named_context if place is None else with_context


def _inline(spec: ProcedureSpec, wire: Wire, invoke: Callable[..., Any]) -> Handler:
    if spec.plain and spec.injected is None:
        return wire.inline(_explainer(spec, wire), invoke)
    values, answer = _values_of(spec, wire), wire.answer
    if spec.injected is None:
        return lambda call_id, payload, sink: answer(sink, call_id, invoke(*values(payload)))
    return lambda call_id, payload, sink: answer(sink, call_id, invoke(Context(sink), *values(payload)))


if sys.version_info >= (3, 12):

    def _start(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> Task[None]:
        return Task(work, loop=loop, eager_start=True)

else:
    # 3.11 has no eager tasks. Driving the first step by hand would be as fast there, but asyncio.timeout() and
    # current_task() fail in such a step; so the scheduler runs it.
    def _start(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> Task[None]:
        return Task(work, loop=loop)


def _in_task(spec: ProcedureSpec, wire: Wire, invoke: Callable[..., Any]) -> Handler:
    """Run in a task that is done already when the coroutine never waits; only then is it entered as in flight."""
    values, answer, name, with_context = _values_of(spec, wire), wire.answer, spec.name, spec.injected is not None

    async def run(key: Any, call_id: Any, params: tuple[Any, ...], sink: Any, running: Any) -> None:
        try:
            answer(sink, call_id, await invoke(*params))
        except BaseException as error:  # noqa: BLE001  # answered and logged there, SystemExit too
            sink.connection.failed(name, call_id, error, sink, key)
        if key in running:
            running.take(key)
            sink.connection.finished(sink)

    def handle(call_id: Any, payload: Any, sink: Any) -> None:
        params = values(payload)
        if with_context:
            params = (Context(sink), *params)
        connection = sink.connection
        running = connection.running
        if len(running) >= connection.max_in_flight:
            raise ResourceExhausted(f"{connection.max_in_flight} calls of this connection are in flight already")
        # JSON-RPC does not forbid to use an id again while its call runs; the table needs a key of its own then.
        key = call_id if call_id not in running else object()
        task = _start(run(key, call_id, params, sink, running), connection.loop)
        if not task.done():
            connection.suspend(key, task, sink)

    return handle


def _gated(invoke: Callable[..., Coroutine[Any, Any, Any]], gate: asyncio.Semaphore) -> Callable[..., Any]:
    async def gated(*params: Any) -> Any:
        async with gate:  # what waits here is bounded by max_in_flight
            return await invoke(*params)

    return gated


def _threaded(invoke: Callable[..., Any], threads: Threads, gate: asyncio.Semaphore | None) -> Callable[..., Any]:
    async def in_thread(*params: Any) -> Any:
        job = Job(invoke, params)
        future = await _enter(threads, job, gate)
        try:
            # Shielded: a cancelled caller is answered at once; the thread goes on and keeps its place.
            return await asyncio.shield(future)
        finally:
            job.wanted = False
            if not future.done() and (sink := current_sink.get()) is not None:
                sink.connection.linger(future)

    return in_thread


async def _enter(threads: Threads, job: Job, gate: asyncio.Semaphore | None) -> asyncio.Future[Any]:
    """Send a job to its thread; what the gate let through leaves it when the thread is done, not its caller."""
    if gate is None:
        return threads.run(job)
    await gate.acquire()
    try:
        future = threads.run(job)
    except RPCError:
        gate.release()
        raise
    future.add_done_callback(lambda _: gate.release())
    return future


def _with_timeout(handler: Handler, timeout: float) -> Handler:
    """The procedure's own timeout: the nearer of it and the caller's deadline holds."""

    def handle(call_id: Any, payload: Any, sink: Sink) -> None:
        call = Call(sink, earliest(sink.deadline, timeout), sink.metadata)
        token = current_sink.set(call)
        try:
            handler(call_id, payload, call)
        finally:
            current_sink.reset(token)

    return handle
