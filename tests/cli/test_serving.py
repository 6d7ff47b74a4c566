"""`rpcfast serve` as a process: where it listens, what it says, how it ends."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rpcfast import Client, ResourceExhausted
from tests.cli.conftest import ENVIRONMENT, QUICKSTART, SERVICE, Running

Serve = Callable[..., Running]
Command = Callable[..., subprocess.CompletedProcess[str]]


def test_a_file_is_served_and_called(serve: Serve) -> None:
    """One line says what is served where; port 0 is a free one; the procedures answer there."""
    server = serve(QUICKSTART, "--port", "0")
    assert server.line == f"quickstart: 3 procedures on {server.address}  (Ctrl-C stops)\n"
    with Client(server.address) as client:
        assert client.sum(2, 3) == 5
        assert client.text.upper("hi") == "HI"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_well(serve: Serve, number: int) -> None:
    """Ctrl-C, and what a supervisor sends, end it with exit code 0 and without a word."""
    server = serve(QUICKSTART, "--port", "0")
    server.process.send_signal(number)
    assert server.process.wait(10) == 0
    assert server.process.stderr.read() == ""


def test_options_come_from_the_environment_and_typed_ones_go_first(serve: Serve, tmp_path: Path) -> None:
    """RPCFAST_UDS is --uds; a log level that is typed replaces RPCFAST_LOG_LEVEL."""
    path = tmp_path / "s"
    environment = {**ENVIRONMENT, "RPCFAST_UDS": str(path), "RPCFAST_LOG_LEVEL": "nonsense", "RPCFAST_PORT": "1"}
    server = serve(QUICKSTART, "--log-level", "error", env=environment)
    assert server.address == f"unix://{path}"
    with Client(server.address) as client:
        assert client.sum(1, 1) == 2


def test_an_inherited_socket_is_served(serve: Serve) -> None:
    """--fd takes a listening socket that somebody else made, as systemd does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = serve(QUICKSTART, "--fd", str(listener.fileno()), pass_fds=[listener.fileno()])
        with Client(f"tcp://127.0.0.1:{listener.getsockname()[1]}") as client:
            assert client.sum(1, 1) == 2
    assert "tcp://127.0.0.1:" in server.line


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_standard_input_and_output_are_served(loop: str) -> None:
    """--stdio serves one connection over a socket that is both, as `exec:` gives it, and ends with it."""
    with Client(f"exec:{sys.executable} -m rpcfast serve {QUICKSTART} --stdio --loop {loop}") as client:
        assert [client.sum(number, 1) for number in range(100)] == list(range(1, 101))


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_two_pipes_are_served(command: Command, loop: str) -> None:
    """--stdio serves pipes as well, what is printed goes elsewhere, and the end of the input ends it."""
    request = '{"jsonrpc":"2.0","method":"sum","params":[2,3],"id":1}\n'
    done = command("serve", QUICKSTART, "--stdio", "--loop", loop, input=request)
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"jsonrpc":"2.0","id":1,"result":5}\n', "")


def test_the_log_can_be_json(serve: Serve) -> None:
    """The announcement and what a failing procedure leaves in the log are JSON, one object a line."""
    server = serve(SERVICE, "--port", "0", "--log-format", "json")
    assert json.loads(server.line)["message"] == f"tested: 8 procedures on {server.address}"
    with Client(server.address) as client:
        client.notify("bug")
        client.echo(1)
    record = json.loads(server.process.stderr.readline())
    assert (record["level"], record["logger"], record["message"]) == ("error", "rpcfast", "bug failed")
    assert "KeyError: 'secret'" in record["exception"]


def test_limits_that_are_given_replace_those_of_the_server(serve: Serve) -> None:
    """--max-message-size holds, whatever the file says."""
    server = serve(SERVICE, "--port", "0", "--max-message-size", "1000")
    with Client(server.address) as client, pytest.raises(ResourceExhausted):
        client.echo("x" * 2000)


def test_a_taken_port_is_told_in_one_line(command: Command) -> None:
    """Exit code 2, one line with the reason and what to do, no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = command("serve", QUICKSTART, "--port", port)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "choose another address with --host and --port (0 picks a free port)\n"
    )


def test_a_failing_lifespan_is_told_without_our_frames(command: Command, tmp_path: Path) -> None:
    """Exit code 1; the reason, then the line of the user's file."""
    (tmp_path / "app.py").write_text(
        "from contextlib import asynccontextmanager\n"
        "from rpcfast import Server\n"
        "@asynccontextmanager\n"
        "async def lifespan(server):\n"
        "    raise LookupError('no database')\n"
        "    yield\n"
        "server = Server(lifespan=lifespan)\n"
    )
    done = command("serve", "--port", "0", cwd=tmp_path, env={**ENVIRONMENT, "PYTHONPATH": str(Path.cwd())})
    assert done.returncode == 1
    assert done.stderr.startswith("error: rpcfast failed: LookupError: no database\n")
    assert 'app.py", line 5, in lifespan' in done.stderr
    assert "serving.py" not in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--uds", "s", "--stdio"], "--uds, --fd and --stdio exclude each other"),
        (["--uds", "s", "--port", "1"], "--port and --uds exclude each other"),
        (["--drain-timeout", "0"], "--drain-timeout must be more than 0, not 0"),
        (["--port", "abc"], "--port"),
        (["--loop", "fast"], "--loop"),
        (["--workers", "2"], "No such option: --workers"),
    ],
)
def test_wrong_options_are_told_in_one_line(capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    """Each is refused before anything runs, by exit code 2 and one line."""
    from rpcfast.cli.app import run

    assert run(["serve", QUICKSTART, *options]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert words in printed
    assert printed.count("\n") == 1
