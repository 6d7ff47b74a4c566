"""The public API as users type it; mypy and pyright, both strict, must agree with every line. Nothing here is run."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, assert_type

import msgspec

from rpcfast import (
    AsyncClient,
    Client,
    Context,
    InvalidParams,
    Limits,
    Namespace,
    RPCError,
    Server,
    current_context,
    register_codec,
    register_type,
)
from rpcfast.integers import Int32, UInt64

server = Server("typed", "1", limits=Limits(max_message_size=1024, drain_timeout=1.0))


# A served function keeps its signature, in both forms of the decorator.


@server
def add(a: int, b: int = 1) -> int:
    """Serve a plain function."""
    return a + b


@server(name="text.upper", readonly=True, timeout=2.0, tags=["text"], deprecated=False, max_concurrency=3)
async def upper(text: str) -> str:
    """Serve a coroutine function."""
    return text.upper()


@server(thread=True)
def wide(value: UInt64, narrow: Annotated[Int32, msgspec.Meta(ge=0)], *, ctx: Context) -> list[int]:
    """Serve integers of fixed width, a constraint and a context."""
    assert_type(ctx.metadata.get("tenant"), str | None)
    return [value, narrow]


users = Namespace("users")


@users
def get(user_id: int) -> dict[str, int]:
    """Serve in a namespace."""
    return {"id": user_id}


assert_type(add(1), int)
assert_type(add(a=1, b=2), int)
assert_type(get(1), dict[str, int])
server.include(users)
server.include(object(), prefix="things")


async def served_functions() -> None:
    """Call them as they are."""
    assert_type(await upper("hi"), str)
    assert_type(current_context(), Context)


# Clients: any attribute is a procedure of unknown type; `result_type` gives the type back.


def blocking() -> None:
    """Call by a blocking client."""
    with Client("tcp://127.0.0.1:8000", timeout=5.0, metadata={"tenant": "7"}, codec="json") as client:
        assert_type(client, Client)
        assert_type(client.add(2, 3), Any)
        assert_type(client.text.upper("hi"), Any)
        assert_type(client.call("add", 2, 3), Any)
        assert_type(client.call("add", a=2, b=3, timeout=None, metadata={"a": "b"}), Any)
        assert_type(client.call("add", 2, 3, result_type=int), int)
        assert_type(client.call("users.get", 1, result_type=dict[str, int]), dict[str, int])
        client.notify("log", "hello")
        client({"jsonrpc": "2.0", "method": "add", "params": {"a": 2}, "id": 1})


async def asynchronous() -> None:
    """Call by an asynchronous client, here of a server in this process."""
    async with AsyncClient(server) as client:
        assert_type(client, AsyncClient)
        assert_type(await client.add(2, 3), Any)
        assert_type(await client.call("add", 2, 3), Any)
        assert_type(await client.call("add", 2, 3, result_type=int), int)
        await client.notify("log", "hello")


def awaited_later(client: AsyncClient) -> Awaitable[int]:
    """Hand a call on without waiting."""
    return client.call("add", 1, result_type=int)


# Errors with fields.


class InsufficientFunds(RPCError):
    """An error of one's own."""

    code = 4001
    balance: int
    needed: int = 0


def errors(client: Client) -> None:
    """Raise and read them."""
    error = InsufficientFunds("not enough", balance=10, needed=25)
    assert_type(error.balance, int)
    assert_type(error.code, int)
    assert_type(error.message, str)
    try:
        client.add("x")
    except InvalidParams as invalid:
        assert_type(invalid.data, Any)


# Plug-ins.


class Codec:
    """A codec of one's own."""

    def bind(self, kind: Any, /) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        """Bind one type."""
        raise NotImplementedError(kind)


class Money:
    """A type of one's own."""


register_codec("mine", Codec())
register_type(Money, encode=str, decode=lambda _: Money(), schema={"type": "string"})
