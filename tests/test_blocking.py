"""`Client` over sockets and a child's pipes: dialling, redialling, threads, deadlines, forks, closing. Real servers."""

import gc
import os
import socket
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
    """Ids begin again on a new connection: an old call and a new one of one id stay apart."""
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
    with pytest.warns(ResourceWarning, match="unclosed <BlockingLine"):  # noqa: PT031  # it comes from either
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
