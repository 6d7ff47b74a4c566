"""Peers for the tests of clients: real servers in a thread of their own, and raw sockets that misbehave. No tests."""

import asyncio
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from rpcfast import Server
from rpcfast.server import new_event_loop

OPENING = b"\xf5rpc\x01"
RESULT, ERROR, PING, PONG, CANCEL, GOING_AWAY = 3, 4, 9, 10, 7, 11
HELLO_FRAME = struct.pack(">IQBBH", 1, 0, 12, 0, 0) + b"\x80"


def frame(kind: int, call_id: int = 0, body: bytes = b"") -> bytes:
    """A frame without flags and name, written here on its own so that the tests do not trust what they test."""
    return struct.pack(">IQBBH", len(body), call_id, kind, 0, 0) + body


def fresh_server() -> Server:
    """A server with the procedures that the tests call; `server.events` are `threading.Event`s by name."""
    server = Server()
    seen: dict[str, threading.Event] = {}
    server.events = seen  # type: ignore[attr-defined]

    @server
    def sum(a: int, b: int) -> int:
        return a + b

    @server
    def size(data: bytes) -> int:
        return len(data)

    @server
    def blob(count: int) -> bytes:
        return bytes(count)

    @server
    def fail() -> None:
        raise LookupError("secret")

    @server
    async def sleep(seconds: float, event: str = "") -> str:
        """Set the event EVENT-began, then EVENT-cancelled or nothing."""
        try:
            if event:
                seen.setdefault(f"{event}-began", threading.Event()).set()
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            if event:
                seen.setdefault(f"{event}-cancelled", threading.Event()).set()
            raise
        return "slept"

    @server
    def note(event: str) -> None:
        seen.setdefault(event, threading.Event()).set()

    return server


def event_of(server: Server, name: str) -> threading.Event:
    """The event of that name, set by a procedure or about to be."""
    return server.events.setdefault(name, threading.Event())  # type: ignore[attr-defined]


@contextmanager
def serving(server: Server, **where: object) -> Iterator[str]:
    """Serve in a thread with a loop of its own; gives the target."""
    ready = threading.Event()

    def run() -> None:
        with asyncio.Runner(loop_factory=new_event_loop("auto")) as runner:
            runner.run(server.serve(on_ready=lambda _: ready.set(), **({"port": 0} | where)))

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(10)
    target = server.addresses[0]
    try:
        yield target
    finally:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


class Peer:
    """A raw server: each connection is handed to `behave(socket)`, in a thread; what it raises fails the test."""

    def __init__(self, behave: Callable[[socket.socket], None]) -> None:
        self.accepted = 0
        self.error: BaseException | None = None
        self._behave = behave
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(10)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "the peer still waits: close the client first"
        if self.error is not None:
            raise self.error

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._run, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, sock: socket.socket) -> None:
        with sock:
            sock.settimeout(20)
            try:
                self._behave(sock)
            except (ConnectionError, EOFError):
                pass
            except BaseException as error:  # noqa: BLE001  # raised in the test's own thread
                self.error = error


def receive(sock: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes; raises EOFError."""
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def read_frame(sock: socket.socket) -> tuple[int, int, bytes]:
    """The next frame as (kind, id, all that follows the header)."""
    size, call_id, kind, _, _ = struct.unpack(">IQBBH", receive(sock, 16))
    return kind, call_id, receive(sock, size)


def greet(sock: socket.socket) -> None:
    """Take the client's opening and hello, and send ours."""
    assert receive(sock, 5) == OPENING
    assert read_frame(sock)[0] == 12
    sock.sendall(OPENING + HELLO_FRAME)


def read_until_closed(sock: socket.socket) -> None:
    """Take and forget what comes, until the client closes."""
    while sock.recv(65536):
        pass


CHILD = """
import asyncio, os
from rpcfast import Server
server = Server()
@server
def sum(a: int, b: int) -> int:
    return a + b
@server
def pid() -> int:
    return os.getpid()
@server
def die() -> None:
    os._exit(7)
asyncio.run(server.serve(stdio=True))
"""


def child_target(folder: object, script: str = CHILD) -> str:
    """An `exec:` target: a child of this interpreter that runs `script`."""
    path = folder / "child.py"  # type: ignore[operator]
    path.write_text(f"import sys\nsys.path[:0] = {sys.path!r}\n{script}")
    return f"exec:{sys.executable} {path}"
