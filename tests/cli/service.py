"""What the tests of the command serve."""

from typing import Annotated, Any

from msgspec import Meta

from rpcfast import Context, RPCError, Server, Unavailable

server = Server("tested", "1.2")


class TooMuch(RPCError):
    """An error with a field."""

    code = 4001
    limit: int


@server(readonly=True, tags=["math"])
def add(a: Annotated[int, Meta(ge=0)], b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server(deprecated=True)
def echo(value: Any) -> Any:
    """Give back what came."""
    return value


@server
def options(timeout: int, metadata: str, result_type: list[int], name: str) -> list[Any]:
    """Have parameters that are named as options of `Client.call` are."""
    return [timeout, metadata, result_type, name]


@server
def reverse(data: bytes) -> bytes:
    """Turn bytes around."""
    return data[::-1]


@server
def told(ctx: Context) -> list[Any]:
    """Say what came beside the parameters."""
    return [dict(ctx.metadata), ctx.deadline is not None]


@server
def refuse(limit: int) -> None:
    """Fail with a declared error."""
    raise TooMuch("too much", limit=limit)


@server
def away() -> None:
    """Fail as a lost connection does."""
    raise Unavailable("the database is away")


@server
def bug() -> None:
    """Fail without meaning to."""
    raise KeyError("secret")
