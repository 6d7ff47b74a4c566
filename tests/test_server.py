"""`Server`: run, serve, stop; the addresses it gives, and the one line that says why it cannot listen."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rpcfast import AsyncClient, Client, Server
from rpcfast.server import CannotListen, announce, new_event_loop
from tests.services import first, served

ROOT = Path(__file__).parents[1]


def make_server() -> Server:
    """A server with one call."""
    server = Server("demo")

    @server
    def one() -> int:
        return 1

    return server


async def test_serving_ends_by_stop() -> None:
    """`addresses` hold while it serves; after `stop` it serves nobody, and can serve again."""
    server = make_server()
    for _ in range(2):
        async with served(server) as address, AsyncClient(address) as client:
            assert server.addresses == [address]
            assert await client.one() == 1
        assert server.addresses == []
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", int(address.rsplit(":", 1)[1]))


async def test_serving_twice_at_once_is_refused() -> None:
    """The second `serve` raises; the first goes on."""
    server = make_server()
    async with served(server) as address:
        with pytest.raises(RuntimeError, match="serving already"):
            await server.serve(port=0)
        async with AsyncClient(address) as client:
            assert await client.one() == 1


async def test_stop_is_safe_from_another_thread_and_at_any_time() -> None:
    """Before, while and after it serves, from a thread too."""
    server = make_server()
    server.stop()
    ready = asyncio.Event()
    task = asyncio.ensure_future(server.serve(port=0, on_ready=lambda _: ready.set()))
    await ready.wait()
    await asyncio.to_thread(server.stop)
    await asyncio.wait_for(task, 5)
    server.stop()


async def test_cancelling_serve_ends_it() -> None:
    """Its socket is closed, its calls are cancelled, and it can serve again."""
    server, cancelled = make_server(), asyncio.Event()

    @server
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    ready = asyncio.Event()
    task = asyncio.ensure_future(server.serve(port=0, on_ready=lambda _: ready.set()))
    await ready.wait()
    async with AsyncClient(server.addresses[0]) as client:
        call = asyncio.ensure_future(client.wait())
        assert await client.one() == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await cancelled.wait()
        await asyncio.wait([call])
        assert call.exception() is not None
    async with served(server):
        pass


async def test_an_error_in_on_ready_ends_it() -> None:
    """What `on_ready` raises is raised by `serve`, and the port is free again."""
    server, ports = make_server(), []

    def fail(server: Server) -> None:
        ports.append(int(server.addresses[0].rsplit(":", 1)[1]))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await server.serve(port=0, on_ready=fail)
    socket.create_server(("127.0.0.1", ports[0])).close()


async def test_localhost_is_every_address_of_it() -> None:
    """Port 0 with a name of several addresses: each of them is served on the same port."""
    server = make_server()
    async with served(server, host="localhost"):
        assert len({address.rsplit(":", 1)[1] for address in server.addresses}) == 1
        for address in list(server.addresses):
            async with AsyncClient(address) as client:
                assert await client.one() == 1


async def test_a_unix_socket_is_removed_in_the_end(tmp_path: Path) -> None:
    """The file goes with the server; one that a dead server left is replaced."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    server = make_server()
    async with served(server, uds=str(path)) as address, AsyncClient(address) as client:
        assert address == f"unix://{path}"
        assert await client.one() == 1
    assert not path.exists()


async def test_the_next_servers_unix_socket_is_left_alone(tmp_path: Path) -> None:
    """A server that drains does not remove the file of the one that took its place."""
    path = tmp_path / "s"
    old, new = make_server(), make_server()
    async with served(new, port=0):
        ready = asyncio.Event()
        task = asyncio.ensure_future(old.serve(uds=str(path), on_ready=lambda _: ready.set()))
        await first(ready.wait(), task)
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            old.stop()
            await task
            assert path.exists()


async def test_an_inherited_socket_is_served() -> None:
    """A listening descriptor is served on as it is."""
    sock = socket.create_server(("127.0.0.1", 0))
    server = make_server()
    async with served(server, fd=sock.detach()) as address, AsyncClient(address) as client:
        assert await client.one() == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"host": "192.0.2.1", "port": 0}, r"cannot listen on 192\.0\.2\.1:0: .*--host"),
        ({"port": 99_999}, r"cannot listen on 127\.0\.0\.1:99999: .*--port"),
        ({"host": "no.such.host.invalid", "port": 0}, r"cannot listen on no\.such"),
        ({"uds": "/no/such/folder/s"}, "cannot listen on /no/such/folder/s: .*another path"),
        ({"uds": "/" + "x" * 200}, "too long"),
        ({"fd": 999}, "cannot listen on the descriptor 999"),
    ],
)
async def test_what_cannot_be_listened_on_is_one_line(options: Any, reason: str) -> None:
    """A `CannotListen`, which is an `OSError`, says where, why and what to do; the server is as before."""
    server = make_server()
    with pytest.raises(CannotListen, match=reason) as caught:
        await server.serve(**options)
    assert "\n" not in str(caught.value)
    async with served(server):
        pass


async def test_a_port_in_use_is_one_line() -> None:
    """The address stands in it."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(CannotListen, match=f"127.0.0.1:{port}: .*in use"):
            await make_server().serve(port=port)


def test_run_exits_with_2_when_it_cannot_listen(capsys: pytest.CaptureFixture[str]) -> None:
    """One line on the standard error, no traceback."""
    with pytest.raises(SystemExit) as caught:
        make_server().run(uds="/no/such/folder/s")
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("error: cannot listen on ")


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_run_serves_until_it_is_stopped(loop: str) -> None:
    """It serves in the main thread of its own loop, and calls `on_ready` with the server."""
    server, results = make_server(), []

    def call(server: Server) -> None:
        with Client(server.addresses[0]) as client:
            results.append(client.one())
        server.stop()

    server.run(port=0, loop=loop, on_ready=lambda server: threading.Thread(target=call, args=(server,)).start())
    assert results == [1]


RUN = """
import time
from rpcfast import Limits, Server
server = Server(limits=Limits(drain_timeout=30))

@server(thread=True)
def wait(seconds: float) -> str:
    print("begun", flush=True)
    time.sleep(seconds)
    return "done"

@server
def one() -> int:
    return 1

server.run(port=0, on_ready=lambda server: print(server.addresses[0], flush=True))
"""


def start() -> subprocess.Popen[bytes]:
    """The script as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", RUN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_calls_finish(number: signal.Signals) -> None:
    """The call in flight is answered, then the process ends with code 0, without a traceback."""
    with start() as child:
        assert child.stdout is not None
        assert child.stderr is not None
        with Client(child.stdout.readline().decode().strip()) as client:
            results: list[Any] = []
            caller = threading.Thread(target=lambda: results.append(client.wait(0.3)))
            caller.start()
            assert child.stdout.readline() == b"begun\n"
            child.send_signal(number)
            caller.join(10)
        assert results == ["done"]
        assert child.wait(10) == 0
        assert b"Traceback" not in child.stderr.read()


def test_a_second_signal_ends_the_process_at_once() -> None:
    """However long a call still runs."""
    with start() as child:
        assert child.stdout is not None
        with Client(child.stdout.readline().decode().strip()) as client:
            client.notify("wait", 60)
            assert child.stdout.readline() == b"begun\n"
            child.terminate()
            while child.poll() is None:
                child.terminate()
                try:
                    child.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
        assert child.returncode == 128 + signal.SIGTERM


def test_signal_handlers_are_given_back() -> None:
    """After `run` the process has its own again."""
    server = make_server()
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    server.run(port=0, on_ready=lambda server: server.stop())
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_announce_says_what_is_served_where(capsys: pytest.CaptureFixture[str]) -> None:
    """One line on the standard error; over standard input and output, none."""
    server = make_server()
    announce(server)
    server.addresses = ["tcp://127.0.0.1:1"]
    announce(server)
    assert capsys.readouterr().err == "demo: 1 procedures on tcp://127.0.0.1:1  (Ctrl-C stops)\n"


def test_loops_by_name() -> None:
    """The name auto takes uvloop where it is; a name that is none is refused."""
    for name, module in (("auto", "uvloop"), ("uvloop", "uvloop"), ("asyncio", "asyncio")):
        loop = new_event_loop(name)()
        assert type(loop).__module__.startswith(module)
        loop.close()
    with pytest.raises(ValueError, match="auto, uvloop and asyncio"):
        new_event_loop("trio")


def test_auto_is_asyncio_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where uvloop is not installed, auto goes on without, and uvloop by name is an error."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert new_event_loop("auto") is asyncio.new_event_loop
    with pytest.raises(ImportError):
        new_event_loop("uvloop")
