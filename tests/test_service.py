"""The registry: what is served, under which name, and what is refused before it is."""

import functools
from typing import Any

import pytest

from rpcfast import AsyncClient, Context, Limits, Namespace, Server
from rpcfast.codecs import Codec
from rpcfast.errors import MethodNotFound, ParseError, Unimplemented
from rpcfast.service import Registry, Runtime
from rpcfast.testing import connect


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Users:
    """An object whose methods are served."""

    class Error(Exception):
        """No method."""

    limit = 3

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def get(self, place: int) -> str:
        return self._names[place]

    async def count(self, ctx: Context) -> int:
        return len(self._names)

    @staticmethod
    def version() -> str:
        return "1"

    @classmethod
    def title(cls) -> str:
        return cls.__name__

    @property
    def first(self) -> str:
        raise AssertionError("a property is not looked at")

    def _secret(self) -> str:
        return "secret"


def test_the_decorator_gives_the_function_back() -> None:
    """Bare and with options: the function itself, and what was said of it."""
    server = Server()
    assert server(add) is add
    assert server(name="other.add", readonly=True, tags=["x"], timeout=2.0, deprecated=True)(add) is add
    spec = server.procedures["other.add"]
    assert (spec.readonly, spec.tags, spec.timeout, spec.deprecated, spec.doc) == (
        True,
        ("x",),
        2.0,
        True,
        "Add two numbers.",
    )


def test_a_decorator_can_be_used_again() -> None:
    """Options hold for each function that one decorator is put on."""
    server = Server()
    option = server(tags=["x"], readonly=True)

    @option
    def one() -> None: ...

    @option
    def two() -> None: ...

    assert [spec.tags for spec in server.procedures.values()] == [("x",), ("x",)]


@pytest.mark.parametrize(
    ("register", "error", "reason"),
    [
        (lambda s: s("name"), TypeError, r"@server\(name='name'\)"),
        (lambda s: s(3), TypeError, "3 is not a function"),
        (lambda s: s(tags="x")(add), TypeError, r"tags=\['x'\]"),
        (lambda s: s(name="rpc.x")(add), ValueError, "reserved"),
        (lambda s: s(name="a b")(add), ValueError, "identifiers"),
        (lambda s: s(colour="red")(add), TypeError, "colour"),
        (lambda s: s(timeout=0)(add), ValueError, "timeout"),
        (lambda s: s(max_concurrency=0)(add), ValueError, "max_concurrency"),
        (lambda s: [s(add), s(add)], ValueError, "the name 'add' is taken"),
        (lambda s: s.include(Users), TypeError, "give an instance"),
        (lambda s: s.include(Users([])), ValueError, "needs a prefix"),
        (lambda s: s.include(object(), prefix="x"), ValueError, "no public methods"),
        (lambda s: Namespace(""), ValueError, "identifiers joined by dots"),
        (lambda s: Namespace("a-b"), ValueError, "joined by dots, not"),
    ],
)
def test_what_cannot_be_served_is_refused(register: Any, error: type[Exception], reason: str) -> None:
    """When it is decorated, with a reason."""
    with pytest.raises(error, match=reason):
        register(Server())


async def test_the_methods_of_an_object_are_served() -> None:
    """Its public methods, static and class methods too; not its classes, values, properties and private methods."""
    server = Server()
    server.include(Users(["ann", "bob"]), prefix="users")
    assert sorted(server.procedures) == ["users.count", "users.get", "users.title", "users.version"]
    async with connect(server) as client:
        assert await client.users.get(1) == "bob"
        assert await client.users.count() == 2
        assert await client.users.title() == "Users"


async def test_a_namespace_is_served_under_its_prefix() -> None:
    """Names are prefix and name, a given name too; including it under another prefix puts that before."""
    users = Namespace("users")
    users(add)
    users(name="plus")(add)
    server = Server()
    server.include(users)
    server.include(users, prefix="v2")
    assert sorted(server.procedures) == ["users.add", "users.plus", "v2.users.add", "v2.users.plus"]
    async with connect(server) as client:
        assert await client.v2.users.plus(1, 2) == 3
    assert repr(users) == "Namespace('users')"


def test_an_include_that_collides_adds_nothing() -> None:
    """All or none."""
    server, users = Server(), Namespace("users")
    users(add)
    users(name="plus")(add)
    server(name="users.plus")(add)
    with pytest.raises(ValueError, match=r"'users\.plus' is taken"):
        server.include(users)
    assert list(server.procedures) == ["users.plus"]


class Picky(Codec):
    """A codec that carries numbers only."""

    def bind(self, kind: Any, /) -> Any:
        from rpcfast.codecs import MsgpackCodec

        if kind is str:
            raise TypeError("no text here")
        return MsgpackCodec().bind(kind)


async def test_a_codec_that_cannot_carry_a_procedure_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """That one is Unimplemented with the reason, the rest is served."""
    from rpcfast import codecs

    monkeypatch.setitem(codecs._codecs, "picky", Picky())
    server = Server()
    server(add)

    @server
    def text() -> str:
        return "x"

    async with connect(server, codec="picky") as client:
        assert await client.add(1, 2) == 3
        with pytest.raises(Unimplemented, match="no text here"):
            await client.text()


async def test_bindings_are_made_once() -> None:
    """One for each codec, and one for JSON-RPC; a codec that there is not is a LookupError."""
    runtime = Runtime(Registry(), Limits())
    assert runtime.native("msgpack") is runtime.native("msgpack")
    assert runtime.native("msgpack") is not runtime.native("json")
    assert runtime.jsonrpc() is runtime.jsonrpc()
    with pytest.raises(LookupError, match="no codec is named 'xml'"):
        runtime.native("xml")
    runtime.close()


async def test_a_procedure_that_comes_later_joins_every_binding() -> None:
    """Those made before and those made after; a runtime that is gone is not kept."""
    registry = Registry()
    runtime = Runtime(registry, Limits())
    before = runtime.native("msgpack")
    registry(add)
    assert b"add" in before.handlers
    assert b"add" in runtime.native("json").handlers
    assert "add" in runtime.jsonrpc().names.values()
    del runtime, before
    import gc

    gc.collect()
    assert len(registry._runtimes) == 0


async def test_an_empty_service_knows_no_method() -> None:
    """A server without procedures answers."""
    async with AsyncClient(Server()) as client:
        with pytest.raises(MethodNotFound):
            await client.anything()


async def test_answers_over_jsonrpc_are_not_expected() -> None:
    """No calls are made over that protocol by a server."""
    runtime = Runtime(Registry(), Limits())
    assert isinstance(runtime.jsonrpc().decode_error(b""), ParseError)


async def test_wrapped_functions_are_served() -> None:
    """A decorated function is served with the signature of what it wraps."""

    @functools.wraps(add)
    def wrapped(*args: Any) -> Any:
        return add(*args) * 10

    server = Server()
    server(wrapped)
    async with connect(server) as client:
        assert await client.add(1, 2) == 30


@pytest.mark.parametrize("prefix", ["a b", "rpc", "x" * 255])
def test_a_prefix_that_makes_no_name_is_refused(prefix: str) -> None:
    """The names that include() makes of a namespace's are held to the rules of every name."""
    namespace, server = Namespace("group"), Server()
    namespace(abs_of)
    with pytest.raises(ValueError, match="name"):
        server.include(namespace, prefix=prefix)
    assert not server.procedures


def abs_of(number: int) -> int:
    """A procedure to include."""
    return abs(number)
