"""What a handler may know of its call."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rpcfast.call import NO_METADATA, Call, Context, Deadline, Peer, current_context, current_sink, earliest


class Connection:
    """A sink that notes what it hears, as a connection is for calls with nothing but parameters."""

    metadata = NO_METADATA
    deadline = None
    wanted = True
    lost = False
    identity = "alice"
    peer = Peer("native", "127.0.0.1:5")

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.heard: list[Any] = []
        self.connection = self

    def check_size(self, size: int) -> None:
        self.heard.append(size)

    def suspended(self) -> None:
        self.heard.append("suspended")

    def answered(self) -> None:
        self.heard.append("answered")


def test_deadline_is_a_point_in_time() -> None:
    """What remains shrinks as time goes, and is never negative."""
    deadline = Deadline.after(100.0)
    assert 99.0 < deadline.remaining() <= 100.0
    assert deadline.at == Deadline(deadline.at).at
    assert Deadline.after(-1.0).remaining() == 0.0


@pytest.mark.parametrize(
    ("first", "timeout", "nearest"),
    [(None, None, None), (9.0, None, 9.0), (None, 7.0, 7.0), (9.0, 7.0, 7.0), (7.0, 9.0, 7.0)],
)
def test_nearer_deadline_holds(first: float | None, timeout: float | None, nearest: float | None) -> None:
    """Of a deadline and a timeout, the one that ends first counts; either may be missing."""
    deadline = earliest(None if first is None else Deadline.after(first), timeout)
    if nearest is None:
        assert deadline is None
    else:
        assert nearest - 1 < deadline.remaining() <= nearest


def test_call_with_extras_answers_where_its_sink_does() -> None:
    """A call has its own deadline and metadata; its answers and what is said of them go to its sink."""
    connection, deadline = Connection(), Deadline.after(1.0)
    call = Call(connection, deadline, {"tenant": "7"})
    call.out.append(b"answer")
    call.check_size(6)
    call.suspended()
    call.answered()
    assert connection.out == [b"answer"]
    assert connection.heard == [6, "suspended", "answered"]
    assert (call.connection, call.wanted) == (connection, True)
    assert (call.deadline, call.metadata) == (deadline, {"tenant": "7"})


def test_context_shows_the_call() -> None:
    """The context has the call's deadline and metadata, and the connection's peer and identity."""
    deadline = Deadline.after(1.0)
    context = Context(Call(Connection(), deadline, {"tenant": "7"}))
    assert (context.deadline, context.metadata) == (deadline, {"tenant": "7"})
    assert (context.peer, context.identity) == (Peer("native", "127.0.0.1:5"), "alice")
    assert repr(context).startswith("<Context of a call from native 127.0.0.1:5, deadline ")


def test_metadata_of_a_plain_call_cannot_be_written() -> None:
    """Calls that carry none share one empty map, which nobody can fill."""
    with pytest.raises(TypeError):
        Context(Connection()).metadata["a"] = "b"


def test_context_is_cancelled_when_nobody_waits() -> None:
    """The connection is gone, or the deadline has passed."""
    connection = Connection()
    assert not Context(connection).cancelled()
    assert not Context(Call(connection, Deadline.after(9.0), {})).cancelled()
    assert Context(Call(connection, Deadline.after(0.0), {})).cancelled()
    connection.lost = True
    assert Context(connection).cancelled()


def test_context_is_cancelled_with_its_task() -> None:
    """A task that was cancelled, and cleans up, sees it."""
    seen: list[bool] = []

    async def handler() -> None:
        context = Context(Connection())
        seen.append(context.cancelled())
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(context.cancelled())

    async def main() -> None:
        task = asyncio.ensure_future(handler())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    assert seen == [False, True]


def test_current_context_is_that_of_the_call() -> None:
    """It is found below the handler, also in tasks that it starts; outside of a call there is none."""

    async def below() -> str | None:
        return current_context().identity

    async def handler() -> str | None:
        return await asyncio.create_task(below())

    with pytest.raises(LookupError, match="no call is being handled here"):
        current_context()
    token = current_sink.set(Connection())
    try:
        assert asyncio.run(handler()) == "alice"
        assert current_context().peer.protocol == "native"
    finally:
        current_sink.reset(token)


def test_context_is_read_from_a_thread() -> None:
    """A thread without a loop may ask whether its call is still wanted."""
    context, answers = Context(Connection()), SimpleNamespace(cancelled=None)

    def work() -> None:
        answers.cancelled = context.cancelled()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert answers.cancelled is False
