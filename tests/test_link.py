"""One connection that threads share: who reads, deadlines, interrupts, what is sent in pieces. Real servers."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rpcfast import Client, DeadlineExceeded, Server
from tests import peers

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def server() -> Server:
    """A server that nobody serves yet."""
    return peers.fresh_server()


@pytest.fixture(params=["tcp", "unix"])
def target(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Iterator[str]:
    """The server, served."""
    where = {"uds": str(tmp_path / "s")} if request.param == "unix" else {}
    with peers.serving(server, **where) as address:
        yield address


def links_of(client: Client) -> list[object]:
    """The connections of a client that are not closed."""
    return list(client._line._links)


def test_threads_share_one_connection(server: Server, target: str) -> None:
    """Eight threads of mixed calls get their own answers over one connection, and leave nothing behind."""

    def work(client: Client, number: int) -> None:
        for i in range(150):
            assert client.sum(number, i) == number + i
            if i % 50 == 0:
                assert client.blob(70_000 + number) == bytes(70_000 + number)

    with Client(target) as client, ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(work, client, number) for number in range(8)]:
            future.result()
        (link,) = links_of(client)
        assert (link.calls, link._users, link._reading) == ({}, 0, False)


def test_a_slow_call_does_not_hold_up_others(server: Server, target: str) -> None:
    """The thread that waits longest reads for the others; theirs come back meanwhile."""
    with Client(target) as client, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.sleep, 0.5, "slow")
        assert peers.event_of(server, "slow-began").wait(5)
        assert [client.sum(i, 1) for i in range(50)] == list(range(1, 51))
        assert not slow.done()
        assert slow.result() == "slept"


def test_reading_is_handed_on_when_the_reader_is_done(server: Server, target: str) -> None:
    """The first to read leaves with its answer; one that waits takes over and gets its own."""
    with Client(target) as client, ThreadPoolExecutor(3) as pool:
        first = pool.submit(client.sleep, 0.1, "first")
        assert peers.event_of(server, "first-began").wait(5)
        later = [pool.submit(client.sleep, 0.25) for _ in range(2)]
        assert [first.result(), *(one.result() for one in later)] == ["slept"] * 3


def test_reading_is_handed_on_when_the_reader_is_late(server: Server, target: str) -> None:
    """The reader's deadline passes: it raises in time, the server's handler is cancelled, another one reads on."""
    with Client(target) as client, ThreadPoolExecutor(2) as pool:
        began = time.monotonic()
        late = pool.submit(client.call, "sleep", 10, "late", timeout=0.2)
        assert peers.event_of(server, "late-began").wait(5)
        waits = pool.submit(client.sleep, 0.6)
        with pytest.raises(DeadlineExceeded):
            late.result()
        assert time.monotonic() - began < 0.5
        assert peers.event_of(server, "late-cancelled").wait(5)
        assert waits.result() == "slept"


def test_a_waiting_thread_keeps_its_deadline(server: Server, target: str) -> None:
    """A thread that does not read is late in time too, while the reader waits on."""
    with Client(target) as client, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.sleep, 0.6, "slow")
        assert peers.event_of(server, "slow-began").wait(5)
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            client.call("sleep", 10, timeout=0.1)
        assert time.monotonic() - began < 0.4
        assert slow.result() == "slept"


@pytest.mark.parametrize("timeouts", [(None, 0.1, 5.0), (5.0, 0.1, None), (0.05, 5.0, 0.1)])
def test_each_call_has_its_own_deadline(target: str, timeouts: tuple[float | None, ...]) -> None:
    """Whatever timeout the call before had, a call is late when its own is over, not sooner and not later."""
    with Client(target) as client:
        for timeout in timeouts:
            assert client.call("sum", 1, 2, timeout=timeout) == 3
            began = time.monotonic()
            if timeout is not None and timeout < 1:
                with pytest.raises(DeadlineExceeded):
                    client.call("sleep", 10, timeout=timeout)
                assert timeout * 0.9 <= time.monotonic() - began < timeout + 0.25
            else:
                assert client.call("sleep", 0.15, timeout=timeout) == "slept"


def test_a_deadline_that_has_passed_is_not_sent(target: str) -> None:
    """A timeout of 0 fails at once, and the connection stays."""
    with Client(target) as client:
        assert client.sum(1, 2) == 3
        for timeout in (0, -1):
            with pytest.raises(DeadlineExceeded):
                client.call("sum", 1, 2, timeout=timeout)
        assert client.sum(1, 2) == 3


def test_enormous_timeouts_are_taken() -> None:
    """A timeout that no clock reaches is as good as none."""
    with peers.serving(peers.fresh_server()) as target, Client(target, timeout=1e18) as client:
        assert client.sum(1, 2) == 3


def test_late_answers_are_dropped(target: str) -> None:
    """The answer to a call that was given up does not become the next call's."""
    with Client(target) as client:
        with pytest.raises(DeadlineExceeded):
            client.call("sleep", 0.15, timeout=0.05)
        assert [client.sum(i, 0) for i in range(20)] == list(range(20))
        time.sleep(0.2)
        assert client.sum(7, 0) == 7


def test_each_thread_raises_an_error_of_its_own(server: Server, target: str) -> None:
    """Threads that one event fails do not share an exception object, whose traceback would mix."""
    client = Client(target)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(client.sleep, 20, f"c{i}") for i in range(2)]
        for i in range(2):
            assert peers.event_of(server, f"c{i}-began").wait(5)
        client.close()
        first, second = (call.exception() for call in calls)
    assert first is not second


def test_an_interrupted_reader_leaves_the_others_alone(server: Server, target: str) -> None:
    """Ctrl-C in the thread that reads: it raises, its call is cancelled at the server, and another thread reads on."""
    with Client(target) as client, ThreadPoolExecutor(1) as pool:

        def other() -> str:
            assert peers.event_of(server, "mine-began").wait(5)
            waits = client.sleep
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            return waits(0.6)

        waiting = pool.submit(other)
        with pytest.raises(KeyboardInterrupt):
            client.sleep(20, "mine")
        assert peers.event_of(server, "mine-cancelled").wait(5)
        assert waiting.result() == "slept"
        assert len(links_of(client)) == 1
        assert client.sum(1, 2) == 3


def test_a_name_that_no_frame_takes(target: str) -> None:
    """An over-long name is a ValueError at the caller, and costs the connection nothing."""
    with Client(target) as client:
        assert client.sum(1, 2) == 3
        for name in ("x" * 256, ""):
            with pytest.raises(ValueError, match="1 to 255 bytes"):
                client.call(name)
        assert client.sum(1, 2) == 3
        (link,) = links_of(client)
        assert (link.calls, link._users) == ({}, 0)


def test_short_sends_are_completed(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that the kernel takes in pieces arrives whole, and the next one goes the short way again."""
    with Client(target) as client:
        assert client.sum(1, 2) == 3
        (link,) = links_of(client)

        class Short:
            """The socket, taking five bytes at a time."""

            def __init__(self, sock: socket.socket) -> None:
                self._sock = sock

            def __getattr__(self, name: str) -> object:
                return getattr(self._sock, name)

            def send(self, data: bytes, flags: int = 0) -> int:
                return self._sock.send(data[:5], flags)

        monkeypatch.setattr(link, "_sock", Short(link._sock))
        assert client.sum(3, 4) == 7
        assert client.size(bytes(100)) == 100
        assert links_of(client) == [link]
        monkeypatch.undo()
        assert client.sum(5, 6) == 11
