"""Stream sockets, TCP and Unix: listen and dial; floor 1: gives asyncio transports, reads and writes nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rpcfast.transport.target import Target

__all__ = ["connect_blocking", "dial", "listen_fd", "listen_tcp", "listen_unix", "tune"]

BACKLOG: Final = 2048
RECEIVE_SIZE: Final = 64 * 1024

Factory = Callable[[], asyncio.Protocol]


def tune(transport: Any) -> None:
    """Make a transport fit for small messages that must not wait.

    The stdlib loop reads into a new 256 KiB buffer each time, beyond glibc's mmap threshold: 64 KiB is 2.8x faster.
    """
    if hasattr(transport, "max_size"):
        transport.max_size = RECEIVE_SIZE
    sock = transport.get_extra_info("socket")
    if sock is not None:
        no_delay(sock)


def no_delay(sock: Any) -> None:
    """Send at once (Nagle's algorithm off) where the socket is TCP."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):  # the peer may be gone already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def listen_tcp(host: str, port: int) -> list[socket.socket]:
    """Sockets bound to every address of `host`; port 0 picks a free one, the same for all.

    An address that this machine does not have, as a name's IPv6 one in many containers, is left out when another can be
    bound. Raises `OSError`, or `OverflowError` for a port that is none.
    """
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, kind, proto, _, address in dict.fromkeys(found):
            try:
                sockets.append(_listening(family, kind, proto, (address[0], port, *address[2:])))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
            port = port or (sockets[0].getsockname()[1] if sockets else 0)
        if absent is not None and not sockets:
            raise absent
    except (OSError, OverflowError):
        for sock in sockets:
            sock.close()
        raise
    return sockets


_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def _listening(family: int, kind: int, proto: int, address: tuple[Any, ...]) -> socket.socket:
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except (OSError, OverflowError):  # a port beyond 65535 overflows
        sock.close()
        raise
    sock.settimeout(0.0)
    return sock


def listen_unix(path: str) -> socket.socket:
    """A socket bound to `path`, for this user only. A socket file that nobody serves is replaced. Raises `OSError`."""
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(path)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(mask)
    sock.settimeout(0.0)
    return sock


def _remove_stale(path: str) -> None:
    try:
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            raise OSError(errno.EEXIST, "exists and is not a socket", path)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
        else:
            raise OSError(errno.EADDRINUSE, "a server listens on it already", path)


def listen_fd(fd: int) -> socket.socket:
    """A listening socket that was inherited as a descriptor, such as systemd gives. Raises `OSError` for any other."""
    sock = socket.socket(fileno=fd)
    if sock.type != socket.SOCK_STREAM or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.detach()  # whatever it is, it is not ours to close
        raise OSError(errno.EINVAL, "not a listening stream socket")
    sock.settimeout(0.0)
    return sock


async def dial(target: Target, factory: Factory) -> tuple[asyncio.Transport, Any]:
    """Connect to a TCP or Unix target; raises `OSError`. Cancelling closes what was opened."""
    loop = asyncio.get_running_loop()
    if target.scheme == "unix":
        transport, protocol = await loop.create_unix_connection(factory, target.path)
    else:
        transport, protocol = await loop.create_connection(factory, target.host, target.port)
    tune(transport)
    return transport, protocol


def connect_blocking(target: Target, timeout: float | None) -> socket.socket:
    """A connected blocking socket to a TCP or Unix target; raises `OSError`, `TimeoutError` after `timeout` seconds."""
    if target.scheme == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            sock.connect(target.path)
        except OSError:
            sock.close()
            raise
    else:
        sock = socket.create_connection((target.host, target.port), timeout)
        no_delay(sock)
    return sock
