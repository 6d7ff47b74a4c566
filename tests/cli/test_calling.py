"""`rpcfast call`: what is sent, what is printed, how it ends."""

import io
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from rpcfast.cli.app import run
from rpcfast.cli.calling import read_params
from rpcfast.cli.failure import Failure
from tests.cli.conftest import QUICKSTART

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def call(address: str, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run `rpcfast call` here: gives exit code, standard output, standard error."""

    def run_call(*arguments: str) -> tuple[int, str, str]:
        code = run(["call", address, *arguments])
        sys.stdout.flush()
        return code, *capfd.readouterr()

    return run_call


def test_a_call_as_a_process(command: Command, address: str) -> None:
    """The result is one line of JSON, and nothing else is printed."""
    done = command("call", address, "add", "a=2", "b=3")
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


def test_a_call_of_a_childs_pipes(command: Command) -> None:
    """`exec:` serves and calls in one command."""
    done = command("call", f"exec:{sys.executable} -m rpcfast serve {QUICKSTART} --stdio", "sum", "2", "3")
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


@pytest.mark.parametrize(
    ("values", "params"),
    [
        ([], ()),
        (["2", "3"], (2, 3)),
        (["a=2", "b=x y"], {"a": 2, "b": "x y"}),
        (
            ['a="2"', "b=", "c=null", "d=[1, {}]", "e=NaN", "f=01"],
            {"a": "2", "b": "", "c": None, "d": [1, {}], "e": "NaN", "f": "01"},
        ),
        (["http://x/?a=2", '"a=2"', "=", "2=2"], ("http://x/?a=2", "a=2", "=", "2=2")),
    ],
)
def test_values_are_json_where_they_parse(values: list[str], params: object) -> None:
    """Text otherwise. What stands before `=` is a name only if it can be one."""
    assert read_params(values, None) == params


@pytest.mark.parametrize(
    ("values", "json", "words"),
    [
        (["a=1", "2"], None, "not both"),
        (["a=1", "a=2"], None, "given twice"),
        (["a=1"], "{}", "--json gives all parameters"),
        ([], "{", "--json: "),
        ([], "5", "--json takes an object of parameters by name"),
        ([], "[" * 100_000, "--json: "),
    ],
)
def test_parameters_that_make_no_sense_are_refused(values: list[str], json: str | None, words: str) -> None:
    """In one line, as wrong usage."""
    with pytest.raises(Failure, match=words) as raised:
        read_params(values, json)
    assert raised.value.code == 2


def test_json_comes_as_text_or_from_standard_input(
    call: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object is by name, a list by position; "-" reads it."""
    assert call("add", "--json", '{"a": 2, "b": 3}') == (0, "5\n", "")
    assert call("add", "--json", "[2]") == (0, "3\n", "")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 5}')))
    assert call("add", "--json", "-") == (0, "6\n", "")


def test_parameters_may_be_named_as_options_of_the_client_are(call: Callable[..., tuple[int, str, str]]) -> None:
    """`timeout`, `metadata`, `result_type` and `name` reach the procedure."""
    assert call("options", "timeout=1", "metadata=m", "result_type=[2]", "name=n") == (0, '[1,"m",[2],"n"]\n', "")


def test_a_result_is_one_line_as_the_server_wrote_it(call: Callable[..., tuple[int, str, str]]) -> None:
    """Newlines are escaped, large integers and the order of members are kept."""
    assert call("echo", '{"b": "1\\n2", "a": 123456789012345678901234567890, "é": 1e300}') == (
        0,
        '{"b":"1\\n2","a":123456789012345678901234567890,"é":1e300}\n',
        "",
    )


def test_raw_prints_text_and_bytes_as_they_are(
    address: str, call: Callable[..., tuple[int, str, str]], command: Command
) -> None:
    """Without quotes, escapes, base64 or a newline; other values stay JSON."""
    assert call("echo", "--raw", '"a\\nb"') == (0, "a\nb", "")
    assert call("echo", "--raw", "[1]") == (0, "[1]\n", "")
    assert call("reverse", "data=AAH/") == (0, '"/wEA"\n', "")
    done = command("call", address, "reverse", "data=AAH/", "--raw", text=False)
    assert (done.returncode, done.stdout) == (0, b"\xff\x01\x00")


def test_metadata_and_timeout_travel(call: Callable[..., tuple[int, str, str]]) -> None:
    """The server is told both; without them it is told nothing."""
    assert call("told", "--metadata", "a=1", "--metadata", "b=x=y", "--timeout", "5") == (
        0,
        '[{"a":"1","b":"x=y"},true]\n',
        "",
    )
    assert call("told") == (0, "[{},false]\n", "")


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["nothing"], "-32601 no procedure is named 'nothing'\n"),
        (["refuse", "limit=3"], '4001 too much\n  {"limit":3}\n'),
        (["bug"], "-32603 bug failed; the server's log says why\n"),
        (["away"], "-32003 the database is away\n"),
    ],
)
def test_a_failed_call_is_code_and_message(
    call: Callable[..., tuple[int, str, str]], arguments: list[str], printed: str
) -> None:
    """Exit code 1; data follows on the next line. An error of the procedure is never taken for a lost connection."""
    assert call(*arguments) == (1, "", printed)


def test_each_wrong_parameter_has_its_line(call: Callable[..., tuple[int, str, str]]) -> None:
    """All errors at once, below the message."""
    code, out, err = call("add", "a=-1", "b=x", "c=1")
    assert (code, out) == (1, "")
    first, *entries = err.splitlines()
    assert first.startswith("-32602 add: ")
    assert [entry.partition(":")[0] for entry in entries] == ["  $.a", "  $.b", "  $.c"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "--metadata", "x"], "--metadata takes key=value, not 'x'"),
        (["add", "--timeout", "0"], "--timeout must be more than 0 seconds, not 0"),
        (["add", "--timeout", "nan"], "--timeout must be more than 0 seconds, not nan"),
        (["x" * 300], "this cannot be sent: a procedure's name must be 1 to 255 bytes"),
        (["add", "a=\udcff"], "this cannot be sent: "),
    ],
)
def test_what_cannot_be_sent_is_wrong_usage(
    call: Callable[..., tuple[int, str, str]], arguments: list[str], words: str
) -> None:
    """Exit code 2 and one line."""
    code, out, err = call(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


@pytest.mark.parametrize("url", ["http://127.0.0.1", "unix://x", "exec:", "tcp://h:99999", "tcp://"])
def test_a_url_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str], url: str) -> None:
    """Exit code 2 and one line."""
    assert run(["call", url, "f"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def free_port() -> int:
    """A port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:{port}", "unix:///nowhere", "exec:/nowhere/at-all"])
def test_nobody_there_is_exit_code_3(capsys: pytest.CaptureFixture[str], url: str) -> None:
    """One line with the reason."""
    assert run(["call", url.format(port=free_port()), "f"]) == 3
    printed = capsys.readouterr().err
    assert printed.startswith("error: cannot connect to ")
    assert printed.count("\n") == 1


def test_a_connection_that_is_lost_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that takes the call and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1000)

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert run(["call", f"127.0.0.1:{listener.getsockname()[1]}", "f"]) == 3
        thread.join()
    assert "was lost before the answer came" in capsys.readouterr().err
