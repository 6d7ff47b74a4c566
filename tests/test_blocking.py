"""`Client` over sockets and a child's pipes: dialling, redialling, threads, deadlines, forks, closing. Real servers."""

import gc
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rpcfast import Client, DeadlineExceeded, InternalError, Server, Unavailable
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


def test_calls_go_to_a_socket(target: str) -> None:
    """Values, errors and large bodies come back over TCP and Unix sockets."""
    with Client(target) as client:
        assert client.sum(2, 3) == 5
        assert client.sum(a=2, b=3) == 5
        with pytest.raises(InternalError, match="fail failed"):
            client.fail()
        assert client.size(bytes(3_000_000)) == 3_000_000
        assert client.blob(3_000_000) == bytes(3_000_000)
        assert client.sum(4, 5) == 9


def test_a_notification_is_run_and_not_answered(server: Server, target: str) -> None:
    """`notify` returns None, and the server runs the call."""
    with Client(target) as client:
        assert client.notify("note", "told") is None
        assert peers.event_of(server, "told").wait(5)


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


def test_close_wakes_those_who_wait(server: Server, target: str) -> None:
    """`close` in one thread fails the calls of the others at once, reader or not, with Unavailable."""
    client = Client(target)
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(client.sleep, 20, f"c{i}") for i in range(3)]
        for i in range(3):
            assert peers.event_of(server, f"c{i}-began").wait(5)
        began = time.monotonic()
        client.close()
        for call in calls:
            with pytest.raises(Unavailable, match="closed"):
                call.result()
        assert time.monotonic() - began < 2
    client.close()
    with pytest.raises(Unavailable, match="closed"):
        client.sum(1, 2)
    assert links_of(client) == []


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


def test_a_lost_server_is_dialled_again(server: Server, tmp_path: Path) -> None:
    """A server that is stopped and started again on its address is used again; between, Unavailable says where."""
    path = str(tmp_path / "s")
    with Client(f"unix://{path}") as client:
        with peers.serving(server, uds=path):
            assert client.sum(1, 2) == 3
        with pytest.raises(Unavailable, match=r"cannot connect to unix://.*is the server running"):
            client.sum(1, 2)
        with peers.serving(peers.fresh_server(), uds=path):
            assert client.sum(1, 2) == 3


def test_an_old_call_is_not_answered_on_a_new_connection(server: Server, tmp_path: Path) -> None:
    """Ids begin again on a new connection: a call that an old one still answers and a new one with its id stay apart."""
    with peers.serving(server) as target, Client(target) as client, ThreadPoolExecutor(1) as pool:
        old = pool.submit(client.sleep, 0.5, "old")
        assert peers.event_of(server, "old-began").wait(5)
        (link,) = links_of(client)
        link.leaving = True
        assert client.sum(2, 3) == 5
        assert len(links_of(client)) == 2
        assert old.result() == "slept"
        assert link.closed
        assert len(links_of(client)) == 1


def test_an_idle_connection_is_looked_at(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause, a server that went away is noticed before the call is sent, so that the call does not fail."""
    for module in ("blocking", "link"):
        monkeypatch.setattr(f"rpcfast.{module}.IDLE", 0.0)
    path = str(tmp_path / "s")
    with Client(f"unix://{path}") as client:
        with peers.serving(server, uds=path):
            assert client.sum(1, 2) == 3
        with peers.serving(peers.fresh_server(), uds=path):
            assert client.sum(1, 2) == 3


def test_nobody_listens() -> None:
    """A refused connection and a name that is none are Unavailable, with the target and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for target in (f"tcp://127.0.0.1:{port}", "unix:///nowhere/at/all", "tcp://a..b:1", "exec:/no/such/command"):
        with Client(target) as client, pytest.raises(Unavailable, match="cannot connect to"):
            client.sum(1, 2)


def test_a_dial_keeps_the_deadlines_of_others() -> None:
    """While one thread waits for a connection, another one's shorter deadline holds, and close() does not wait."""
    with socket.socket() as listener:  # its queue is full: the kernel answers no one
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        client = Client(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        with ThreadPoolExecutor(1) as pool:
            dials = pool.submit(client.call, "sum", 1, 2, timeout=1.0)
            while not client._line._dialling.locked():
                time.sleep(0.001)
            began = time.monotonic()
            with pytest.raises(DeadlineExceeded):
                client.call("sum", 1, 2, timeout=0.1)
            client.close()
            assert time.monotonic() - began < 0.6
            with pytest.raises((DeadlineExceeded, Unavailable)):
                dials.result()
        for filler in fillers:
            filler.close()


def test_a_forked_child_has_its_own_connection(target: str) -> None:
    """The child of a fork calls over a connection of its own; the parent's goes on, and its calls in flight too."""
    with Client(target) as client, ThreadPoolExecutor(1) as pool:
        assert client.sum(1, 2) == 3
        slow = pool.submit(client.sleep, 0.4)
        with client._line._dialling:  # as if another thread held it
            pid = os.fork()
            if pid == 0:
                os._exit(0 if [client.sum(i, 1) for i in range(5)] == list(range(1, 6)) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert client.sum(3, 4) == 7
        assert slow.result() == "slept"


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


def test_a_child_process_serves_and_is_reaped(tmp_path: Path) -> None:
    """exec: starts the command, calls it, starts it again when it died, and leaves no process behind."""
    client = Client(peers.child_target(tmp_path))
    pid = client.pid()
    assert client.sum(2, 3) == 5
    with pytest.raises(Unavailable, match="lost"):
        client.die()
    again = client.pid()
    assert again != pid
    client.close()
    for gone in (pid, again):
        with pytest.raises(ProcessLookupError):
            os.kill(gone, 0)


def test_a_child_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that ignores the end of its input is killed by close()."""
    monkeypatch.setattr("rpcfast.transport.pipes.CHILD_PATIENCE", 0.1)
    marker = tmp_path / "pid"
    script = f"import os, time\nopen({str(marker)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    client = Client(peers.child_target(tmp_path, script))
    with pytest.raises(DeadlineExceeded):
        client.call("sum", 1, 2, timeout=1.0)
    client.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


def test_a_forgotten_client_warns(target: str) -> None:
    """A client that is dropped without close() says so by ResourceWarning, and its connection is closed."""
    client = Client(target)
    assert client.sum(1, 2) == 3
    (link,) = links_of(client)
    with pytest.warns(ResourceWarning, match="unclosed <BlockingLine"):
        del client
        gc.collect()
    assert link.closed


def test_a_closed_client_is_silent(target: str) -> None:
    """No warning comes from a client that was closed, or never connected."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Client(target) as client:
            client.sum(1, 2)
        Client(target)
        del client
        gc.collect()


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
