"""`rpcfast serve`: runs the Server that a TARGET names until it is told to stop."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from msgspec.structs import replace

from rpcfast.cli.failure import REMOTE, Failure
from rpcfast.cli.loading import blame, load_server
from rpcfast.cli.logs import Format, Level, announce_as, configure
from rpcfast.server import Server, new_event_loop

__all__ = ["serve"]


def serve(  # the options of the command
    target: str | None,
    *,
    host: str,
    port: int,
    uds: str | None,
    fd: int | None,
    stdio: bool,
    loop: str,
    log_level: Level,
    log_format: Format,
    limits: Mapping[str, float | None],
) -> None:
    """Serve until SIGINT or SIGTERM, or with `stdio` until the standard input ends; raises `Failure`."""
    if sum((uds is not None, fd is not None, stdio)) > 1:
        raise Failure("error: --uds, --fd and --stdio exclude each other; choose one")
    try:
        new_event_loop(loop)
    except ImportError:
        raise Failure("error: --loop uvloop: uvloop is not installed; pip install uvloop, or --loop auto") from None
    configure(log_level, log_format)
    server = load_server(target)
    _limit(server, limits)
    try:
        server.run(host, port, uds=uds, fd=fd, stdio=stdio, loop=loop, on_ready=partial(announce_as, log_format))
    except Exception as error:  # noqa: BLE001  # such as from its lifespan: nothing of ours is left to say about it
        raise Failure(blame(error, f"{server.name} failed"), REMOTE) from None


def _limit(server: Server, limits: Mapping[str, float | None]) -> None:
    """Let options that were given take the place of the server's own limits."""
    given = {name: value for name, value in limits.items() if value is not None}
    for name, value in given.items():
        if not value > 0:
            raise Failure(f"error: --{name.replace('_', '-')} must be more than 0, not {value:g}")
    server.limits = replace(server.limits, **given)
