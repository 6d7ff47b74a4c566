"""A client that knows docs/protocol.md and nothing else talks to a real server."""

import ast
import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rpcfast import Server
from tests import independent_client
from tests.independent_client import CALL, CANCEL, ERROR, GOING_AWAY, HELLO, PING, PONG, RESULT, Client, frame, unpack

SOURCE = Path(independent_client.__file__).read_text()


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """A server in a thread of its own; gives its host and port."""
    server, ready = Server(), threading.Event()

    @server
    def add(a: int, b: int) -> int:
        return a + b

    @server(name="text.upper")
    async def upper(text: str) -> str:
        return text.upper()

    @server
    async def forever() -> None:
        await asyncio.Event().wait()

    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve("127.0.0.1", 0, on_ready=lambda _: ready.set())), daemon=True
    )
    thread.start()
    assert ready.wait(10)
    target = urlsplit(server.addresses[0])
    yield str(target.hostname), int(target.port or 0)
    server.stop()
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def client(address: tuple[str, int]) -> Iterator[Client]:
    """A connection whose first frame, the server's HELLO, was read."""
    client = Client(*address)
    assert client.receive()[:2] == (HELLO, 0)
    yield client
    client.socket.close()


def test_client_knows_the_page_only() -> None:
    """The client imports struct and socket, and is short."""
    imports = {
        alias.name for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.Import) for alias in node.names
    }
    assert imports == {"struct", "socket"}
    assert not [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.ImportFrom)]


def test_calls_are_answered(client: Client) -> None:
    """Calls by position, a dotted name, an unknown name and wrong parameters are answered as the page says."""
    assert client.call("add", 2, -3) == (RESULT, -1)
    assert client.call("text.upper", "grün") == (RESULT, "GRÜN")
    assert client.call("nothing") == (ERROR, ["code", -32601, "message", "no procedure is named 'nothing'"])
    kind, error = client.call("add", 1, "two")
    assert (kind, error[:2]) == (ERROR, ["code", -32602])
    assert client.call("add", 2**40, 1) == (RESULT, 2**40 + 1)


def test_timeout_ends_a_call(client: Client) -> None:
    """A call whose time is over is answered with the code for that."""
    assert client.call("forever", timeout=0.01)[1][:2] == ["code", -32002]
    assert client.call("add", 1, 2, timeout=0)[1][:2] == ["code", -32002]
    assert client.call("add", 1, 2, timeout=5) == (RESULT, 3)


def test_cancel_leaves_no_answer(client: Client) -> None:
    """No answer follows a CANCEL that was in time; one for an unknown id does nothing; a PING is answered."""
    cancels = frame(CANCEL, 1) + frame(CANCEL, 77)
    client.socket.sendall(frame(CALL, 1, b"forever", b"\x90") + cancels + frame(PING, 5, body=b"there?"))
    assert client.receive() == (PONG, 5, b"there?")
    client.last_id = 1
    assert client.call("add", 1, 2) == (RESULT, 3)


def test_violation_is_told_and_ends_the_connection(client: Client) -> None:
    """An id that does not grow gets GOING_AWAY with the last id and an error; then the server closes."""
    assert client.call("add", 1, 2) == (RESULT, 3)
    client.socket.sendall(frame(CALL, 1, b"add", b"\x92\x01\x02"))
    kind, last_id, body = client.receive()
    assert (kind, last_id, unpack(body)[0][:2]) == (GOING_AWAY, 1, ["code", -32600])
    assert client.read(1) == b""


def test_codec_that_the_server_does_not_know(client: Client) -> None:
    """A HELLO with an unknown codec gets GOING_AWAY with an error, and calls that followed are not run."""
    hello = frame(HELLO, 0, body=b"\x81\xa5codec\xa4none")
    client.socket.sendall(hello + frame(CALL, 1, b"add", b"\x92\x01\x02"))
    kind, _, body = client.receive()
    assert (kind, unpack(body)[0][:2]) == (GOING_AWAY, ["code", -32700])
    assert client.read(1) == b""


def test_json_as_the_codec(client: Client) -> None:
    """The codec of the HELLO holds for the call that follows at once."""
    hello = frame(HELLO, 0, body=b"\x81\xa5codec\xa4json")
    client.socket.sendall(hello + frame(CALL, 1, b"add", b'{"a": 2, "b": 3}'))
    assert client.receive() == (RESULT, 1, b"5")
