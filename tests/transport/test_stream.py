"""Stream sockets: what is bound, what is refused, and what is left behind."""

import asyncio
import errno
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from rpcfast.transport import stream
from rpcfast.transport.target import Target


def test_port_0_is_one_port_for_all_addresses() -> None:
    """A name with several addresses is bound on the same free port on each of them, listening and not blocking."""
    sockets = stream.listen_tcp("localhost", 0)
    assert len({sock.getsockname()[1] for sock in sockets}) == 1
    assert all(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and not sock.getblocking() for sock in sockets)
    for sock in sockets:
        sock.close()


def resolve_to(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let every name have these addresses."""
    kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    found = [(socket.AF_INET6 if ":" in host else socket.AF_INET, *kind, (host, 0)) for host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def test_an_address_that_is_not_here_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that has an address which this machine lacks can be listened on, at the others."""
    resolve_to(monkeypatch, "192.0.2.1", "127.0.0.1")
    (sock,) = stream.listen_tcp("name", 0)
    assert sock.getsockname()[0] == "127.0.0.1"
    sock.close()


def test_no_address_here_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """When none of them is here, the reason is raised."""
    resolve_to(monkeypatch, "192.0.2.1")
    with pytest.raises(OSError) as caught:
        stream.listen_tcp("name", 0)
    assert caught.value.errno == errno.EADDRNOTAVAIL


def test_an_address_that_stands_twice_is_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is listed twice for the same address is no conflict."""
    resolve_to(monkeypatch, "127.0.0.1", "127.0.0.1")
    (sock,) = stream.listen_tcp("name", 0)
    sock.close()


def test_a_port_in_use_is_refused() -> None:
    """A port that somebody listens on raises, and leaves no socket open (an open one would warn)."""
    (sock,) = stream.listen_tcp("127.0.0.1", 0)
    with pytest.raises(OSError) as caught:
        stream.listen_tcp("127.0.0.1", sock.getsockname()[1])
    assert caught.value.errno == errno.EADDRINUSE
    sock.close()


def test_a_unix_socket_is_for_its_user_only(tmp_path: Path) -> None:
    """The file may be read and written by its owner, nobody else; the process's mask is as before."""
    mask = os.umask(0o022)
    sock = stream.listen_unix(str(tmp_path / "s"))
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    assert os.umask(mask) == 0o022
    sock.close()


def test_a_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    """A file that a dead server left is no obstacle."""
    path = str(tmp_path / "s")
    stream.listen_unix(path).close()
    assert (tmp_path / "s").exists()
    stream.listen_unix(path).close()


def test_a_living_unix_socket_is_not_replaced(tmp_path: Path) -> None:
    """A file that a server listens on is refused and goes on working."""
    path = str(tmp_path / "s")
    sock = stream.listen_unix(path)
    with pytest.raises(OSError, match="a server listens on it already"):
        stream.listen_unix(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    sock.close()


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    """A file that is no socket is refused and stays."""
    (tmp_path / "s").write_text("precious")
    with pytest.raises(OSError, match="is not a socket"):
        stream.listen_unix(str(tmp_path / "s"))
    assert (tmp_path / "s").read_text() == "precious"


def test_an_inherited_socket_is_taken() -> None:
    """A listening socket is taken over by its descriptor."""
    (sock,) = stream.listen_tcp("127.0.0.1", 0)
    address = sock.getsockname()
    with stream.listen_fd(sock.detach()) as taken:
        assert taken.getsockname() == address


def test_an_inherited_descriptor_of_another_kind_is_refused() -> None:
    """A socket that does not listen, a datagram socket and a file are refused, and stay open."""
    with socket.socket() as idle, socket.socket(type=socket.SOCK_DGRAM) as datagram:
        for sock in (idle, datagram):
            with pytest.raises(OSError, match="not a listening stream socket"):
                stream.listen_fd(sock.fileno())
            os.fstat(sock.fileno())
    reading, writing = os.pipe()
    with pytest.raises(OSError):
        stream.listen_fd(reading)
    os.close(writing)
    os.close(reading)


async def accept(sock: socket.socket) -> Any:
    """A server on a socket, which closes what it accepts."""
    return await asyncio.start_server(lambda _, writer: writer.close(), sock=sock)


async def test_a_dialled_tcp_connection_does_not_wait_to_send() -> None:
    """Nagle's algorithm is off, and the buffer of asyncio's loop is one that glibc does not map anew."""
    (sock,) = stream.listen_tcp("127.0.0.1", 0)
    port = sock.getsockname()[1]
    async with await accept(sock):
        transport, _ = await stream.dial(Target("tcp", "127.0.0.1", port), asyncio.Protocol)
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert transport.max_size == stream.RECEIVE_SIZE  # type: ignore[attr-defined]
        transport.close()


async def test_dialling_nobody_raises_oserror(tmp_path: Path) -> None:
    """A port and a path where nobody listens raise `OSError`, also for the blocking kind."""
    (sock,) = stream.listen_tcp("127.0.0.1", 0)
    nobody = Target("tcp", "127.0.0.1", sock.getsockname()[1])
    sock.close()
    for target in (nobody, Target("unix", path=str(tmp_path / "none"))):
        with pytest.raises(OSError):
            await stream.dial(target, asyncio.Protocol)
        with pytest.raises(OSError):
            stream.connect_blocking(target, 1.0)


async def test_blocking_sockets_connect(tmp_path: Path) -> None:
    """Both kinds of address give a connected socket with its timeout."""
    (sock,) = stream.listen_tcp("127.0.0.1", 0)
    unix = stream.listen_unix(str(tmp_path / "s"))
    for target in (Target("tcp", "127.0.0.1", sock.getsockname()[1]), Target("unix", path=str(tmp_path / "s"))):
        with stream.connect_blocking(target, 2.5) as client:
            assert client.gettimeout() == 2.5
            assert client.getpeername()
    sock.close()
    unix.close()
