"""Children and standard input and output: every way in which a process may be given them."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rpcfast import AsyncClient
from rpcfast.transport import pipes
from rpcfast.transport.pipes import PipeTransport, reap, spawn

ROOT = Path(__file__).parents[2]
SERVER = """
import asyncio, sys
from rpcfast import Limits, Server
from rpcfast.server import CannotListen, new_event_loop
server = Server(limits=Limits(drain_timeout=1.0))

@server
def sum(a: int, b: int) -> int:
    print("a handler may print")
    return a + b

@server
async def slow() -> str:
    await asyncio.sleep(0.05)
    return "x" * 300_000

@server
def asks() -> str:
    return sys.stdin.read()

try:
    with asyncio.Runner(loop_factory=new_event_loop(sys.argv[1])) as runner:
        runner.run(server.serve(stdio=True))
except CannotListen as error:
    sys.exit(f"error: {error}")
"""
CALL = b'{"jsonrpc":"2.0","method":"sum","params":[2,3],"id":1}\n'
SLOW = b'{"jsonrpc":"2.0","method":"slow","id":2}\n'
ASKS = b'{"jsonrpc":"2.0","method":"asks","id":3}\n'

every_loop = pytest.mark.parametrize("loop", ["uvloop", "asyncio"])


def run(loop: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the server until it ends by itself."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SERVER, loop]
    return subprocess.run(command, env=environment, capture_output=True, timeout=20, check=False, **options)


def answers(done: subprocess.CompletedProcess[bytes]) -> list[Any]:
    """The results, by the order in which they came."""
    return [json.loads(line)["result"] for line in done.stdout.splitlines()]


@every_loop
def test_pipes_that_end_at_once_are_answered(loop: str) -> None:
    """Calls that waited in the pipe before the server began, and its end, lose nothing; what prints goes elsewhere."""
    done = run(loop, input=CALL + SLOW + ASKS)
    assert answers(done) == [5, "", "x" * 300_000]
    assert done.stderr.decode().split("\n")[0] == "a handler may print"
    assert done.returncode == 0


@every_loop
def test_an_input_that_ends_without_a_byte_ends_the_server(loop: str) -> None:
    """It does not wait for the first byte's timeout."""
    done = run(loop, input=b"")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@every_loop
def test_a_file_is_refused(loop: str, tmp_path: Path) -> None:
    """A file for the standard input cannot be waited on: one line says so."""
    (tmp_path / "calls").write_bytes(CALL)
    with (tmp_path / "calls").open("rb") as file:
        done = run(loop, stdin=file)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: cannot talk over standard input and output: ")
    assert b"Traceback" not in done.stderr


def test_a_closed_input_is_refused() -> None:
    """A standard input that is closed from the start: one line says so."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SERVER": SERVER}
    done = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -c "$SERVER" asyncio <&-'],
        env=environment,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert b"it is closed" in done.stderr
    assert b"Traceback" not in done.stderr


@every_loop
def test_an_output_that_nobody_reads_ends_the_server(loop: str) -> None:
    """When the reader of its output has gone, the server ends."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(
        [sys.executable, "-c", SERVER, loop],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(CALL)
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["result"] == 5
        child.stdout.close()
        child.stdin.write(CALL)
        child.stdin.flush()
        assert child.wait(20) == 0


@every_loop
async def test_one_socket_for_both_is_a_connection(loop: str, tmp_path: Path) -> None:
    """A child that `spawn` gave a socket serves on it, whichever loop it has, and ends with it."""
    script = tmp_path / "child.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{SERVER}")
    async with AsyncClient(f"exec:{sys.executable} {script} {loop}") as client:
        assert await asyncio.gather(*(client.sum(n, 1) for n in range(100))) == list(range(1, 101))
        assert len(await client.slow()) == 300_000


def test_a_command_that_there_is_not_raises() -> None:
    """`OSError`, and neither socket stays open (an open one would warn)."""
    with pytest.raises(FileNotFoundError):
        spawn(("/no/such/command",))


def test_a_child_is_spawned_with_one_socket() -> None:
    """What is written to the socket is its input, what it prints comes back; it ends when the socket is closed."""
    sock, child = spawn(("cat",))
    sock.sendall(b"there and back")
    assert sock.recv(100) == b"there and back"
    sock.close()
    reap(child)
    assert child.returncode == 0


def test_a_child_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After CHILD_PATIENCE it is ended by force."""
    monkeypatch.setattr(pipes, "CHILD_PATIENCE", 0.05)
    sock, child = spawn(("sleep", "60"))
    with sock:
        reap(child)
    assert child.returncode == -signal.SIGKILL


async def test_what_comes_before_the_connection_is_kept() -> None:
    """Bytes, the end and the loss that come before there is a protocol are told to it in order."""

    class End(asyncio.Protocol):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def data_received(self, data: bytes) -> None:
            self.seen.append(data)

        def eof_received(self) -> None:
            self.seen.append("eof")

        def connection_lost(self, exc: Exception | None) -> None:
            self.seen.append("lost")

    hears, speaks = pipes._Half(writes=False), pipes._Half(writes=True)
    hears.data_received(b"early")
    hears.eof_received()
    speaks.connection_lost(None)
    end, loop = End(), asyncio.get_running_loop()
    left, right = socket.socketpair()
    writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, left)
    reader, _ = await loop.connect_read_pipe(asyncio.Protocol, right)
    transport = PipeTransport(reader, writer, (hears, speaks))
    transport.set_protocol(end)
    assert transport.get_protocol() is end
    hears.begin(transport)
    speaks.begin(transport)
    assert end.seen == [b"early", "eof", "lost"]
    assert transport.is_closing()  # since the protocol did not want to stay
