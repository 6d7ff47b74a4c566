"""`rpcfast inspect`: the same document from a file and from a server, as JSON, as lines, as a table."""

import json
import os
import pty
import subprocess
import sys

import msgspec
import pytest

from rpcfast.cli.app import run
from rpcfast.cli.inspecting import type_text
from rpcfast.codegen.openrpc import Document
from tests.cli.conftest import ENVIRONMENT, SERVICE

LINES = """\
add(a: int >=0, b: int = 1) -> int  [readonly]  [#math]  # Add two numbers.
away() -> None  # Fail as a lost connection does.
bug() -> None  # Fail without meaning to.
echo(value: Any) -> Any  [deprecated]  # Give back what came.
options(timeout: int, metadata: str, result_type: list[int], name: str) -> list  \
# Have parameters that are named as options of `Client.call` are.
refuse(limit: int) -> None  # Fail with a declared error.
reverse(data: bytes) -> bytes  # Turn bytes around.
told() -> list  # Say what came beside the parameters.
"""


def test_a_file_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the output is no terminal, each procedure is one plain line."""
    assert run(["inspect", SERVICE]) == 0
    assert capsys.readouterr().out == LINES


def test_a_server_as_lines(capsys: pytest.CaptureFixture[str], address: str) -> None:
    """A running server tells the same of itself; the scheme may be left out."""
    assert run(["inspect", address.removeprefix("tcp://")]) == 0
    assert capsys.readouterr().out == LINES


def test_json_is_the_openrpc_document(capsys: pytest.CaptureFixture[str], address: str) -> None:
    """From a file and from a server alike."""
    assert run(["inspect", SERVICE, "--format", "json"]) == 0
    text = capsys.readouterr().out
    assert run(["inspect", address, "--format", "json"]) == 0
    assert capsys.readouterr().out == text
    document = msgspec.convert(json.loads(text), Document)
    assert (document.info.title, document.info.version, len(document.methods)) == ("tested", "1.2", 8)


@pytest.mark.parametrize(("more", "coloured"), [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)])
def test_a_terminal_gets_a_table(more: dict[str, str], *, coloured: bool) -> None:
    """With lines drawn around it, in colour unless NO_COLOR is set."""
    ours, theirs = pty.openpty()
    environment = {**ENVIRONMENT, "COLUMNS": "100", **more}
    command = [sys.executable, "-m", "rpcfast", "inspect", SERVICE]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, env=environment) as process:
        os.close(theirs)
        text = read_all(ours)
    assert process.returncode == 0
    assert "Procedure" in text
    assert "a: " in text
    assert "│" in text
    assert ("\x1b[36m" in text or "\x1b[1;36m" in text) == coloured


def read_all(terminal: int) -> str:
    """What is written to a terminal, until nobody can write to it any more."""
    chunks = []
    try:
        while chunk := os.read(terminal, 65536):
            chunks.append(chunk)
    except OSError:  # Linux' way to say that the other side is closed
        pass
    os.close(terminal)
    return b"".join(chunks).decode()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", {"type": "integer"}),
        ("int >=0 <=255", {"type": "integer", "minimum": 0, "maximum": 255}),
        ("float >0", {"type": "number", "exclusiveMinimum": 0}),
        ("datetime", {"type": "string", "format": "date-time"}),
        ("bytes", {"type": "string", "contentEncoding": "base64"}),
        ("list[str] | None", {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
        (
            "tuple[int, str]",
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        ),
        ("dict[str, float]", {"type": "object", "additionalProperties": {"type": "number"}}),
        ("User", {"$ref": "#/components/schemas/User"}),
        ("User", {"type": "object", "title": "User", "properties": {}}),
        ("dict", {"type": "object"}),
        ('"a" | 1', {"enum": ["a", 1]}),
        ("Any", {}),
    ],
)
def test_a_schema_reads_as_a_python_type(kind: str, text: dict) -> None:
    """JSON Schema becomes what a Python programmer would have written."""
    assert type_text(text) == kind


def test_nobody_there_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    """As with `call`."""
    assert run(["inspect", "unix:///nowhere"]) == 3
    assert capsys.readouterr().err.startswith("error: cannot connect to unix:///nowhere")


def test_a_closed_reader_is_no_error() -> None:
    """`rpcfast inspect ... | head` ends quietly, by exit code 1."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "rpcfast", "inspect", SERVICE],
            stdout=closed,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"")
