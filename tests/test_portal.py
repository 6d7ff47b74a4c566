"""A `Server` object as a blocking client's target: the loop's thread, closing, interrupts, forks."""

import gc
import inspect
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rpcfast import Client, Server, Unavailable
from tests import peers

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_close_under_a_call() -> None:
    """A call in flight when another thread closes the client fails with Unavailable; its thread does not wait on."""
    server = peers.fresh_server()
    client = Client(server)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(client.sleep, 20, f"c{i}") for i in range(4)]
        for i in range(4):
            assert peers.event_of(server, f"c{i}-began").wait(5)
        client.close()
        for call in calls:
            with pytest.raises(Unavailable, match="closed"):
                call.result(5)
    assert peers.event_of(server, "c0-cancelled").wait(5)
    assert not any(thread.name == "rpcfast-portal" for thread in threading.enumerate())


def test_close_while_calls_come() -> None:
    """Calls that race with close() either have their answer or fail with Unavailable; none hangs."""
    for _ in range(10):
        client = Client(peers.fresh_server())
        client.sum(0, 0)
        going = threading.Event()

        def work(client: Client = client, going: threading.Event = going) -> int:
            done = 0
            while True:
                try:
                    assert client.sum(done, 1) == done + 1
                except Unavailable:
                    return done
                done += 1
                going.set()

        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(work) for _ in range(3)]
            assert going.wait(5)
            client.close()
            assert all(call.result(10) >= 0 for call in calls)


def test_an_interrupt_cancels_the_call() -> None:
    """Ctrl-C raises in the calling thread, cancels the handler, and the client goes on."""
    server = peers.fresh_server()
    with Client(server) as client:
        assert client.sum(1, 2) == 3

        def interrupt() -> None:
            peers.event_of(server, "s-began").wait(5)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            client.sleep(20, "s")
        assert peers.event_of(server, "s-cancelled").wait(5)
        assert client.sum(1, 2) == 3


def test_a_call_from_its_own_loop_is_refused() -> None:
    """A plain procedure that calls its own client would wait for itself for ever: it is told so."""
    server = Server()
    problem: list[BaseException] = []

    @server
    def inner() -> int:
        return 1

    @server
    def outer() -> int:
        try:
            return client.inner()  # type: ignore[no-any-return]
        except RuntimeError as error:
            problem.append(error)
            return 2

    with Client(server) as client:
        assert client.outer() == 2
    assert "thread=True" in str(problem[0])


def test_a_forked_child_starts_a_loop_of_its_own() -> None:
    """The child of a fork serves the object anew, whatever the parent's threads held; the parent goes on."""
    client = Client(peers.fresh_server())
    assert client.sum(1, 2) == 3
    with client._line._lock:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if client.sum(2, 2) == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert client.sum(3, 4) == 7
    client.close()


def test_a_forgotten_client_ends_its_thread() -> None:
    """A client that is dropped warns by ResourceWarning, and its thread ends."""
    client = Client(peers.fresh_server())
    assert client.sum(1, 2) == 3
    thread = client._line._thread
    with pytest.warns(ResourceWarning, match="unclosed <Portal"):  # noqa: PT031  # it comes from either
        del client
        gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_a_portal_that_never_ran_is_closed() -> None:
    """No thread is started before the first call, and close() needs none."""
    client = Client(peers.fresh_server())
    client.close()
    assert client._line._thread is None
    assert not inspect.iscoroutinefunction(client.close)
