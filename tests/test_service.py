"""The registry behind `@server`: what it refuses and how it says so, names, and the bindings of a running service."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from rpcfast import Context, InvalidParams, Limits, MethodNotFound, Namespace, Server, Unimplemented
from rpcfast.codecs import MsgpackCodec, _codecs, register_codec
from rpcfast.codegen.openrpc import Document
from rpcfast.service import Runtime
from rpcfast.testing import connect
from tests.services import JsonClient, open_memory


@asynccontextmanager
async def json_client(server: Server) -> AsyncIterator[JsonClient]:
    """A JSON-RPC client of a server."""
    async with server.serving() as serving:
        client = JsonClient(*await open_memory(serving))
        yield client
        await client.close()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Opaque:
    """A class that nothing knows."""


def takes_opaque(it: Opaque) -> None:
    """Take what cannot travel."""


def gives_opaque() -> Opaque:
    """Give what cannot travel."""


def takes_many(*items: int) -> None:
    """Take any number."""


def takes_names(**names: int) -> None:
    """Take any names."""


def yields() -> Any:
    """Yield."""
    yield 1


async def later() -> None:
    """Be a coroutine."""


def unresolved(a: "Nowhere") -> None:  # noqa: F821
    """Have an annotation that is none."""


REFUSED: tuple[tuple[Any, dict[str, Any], type[Exception], str], ...] = (
    (7, {}, TypeError, "7 is not a function; to serve an object's methods, use include()"),
    (add, {"tags": "math"}, TypeError, "tags='math' must be a list of texts: tags=['math']"),
    (add, {"name": "a b"}, ValueError, "add(): the name 'a b' must be identifiers joined by dots"),
    (add, {"name": ""}, ValueError, "add(): the name '' must be identifiers"),
    (add, {"name": "a..b"}, ValueError, "add(): the name 'a..b' must be identifiers"),
    (add, {"name": "rpc.add"}, ValueError, "add(): the name 'rpc.add' is reserved"),
    (add, {"name": "x" * 256}, ValueError, "add(): the name is longer than 255 bytes"),
    (lambda: 1, {}, ValueError, "the name '<lambda>' must be identifiers"),
    (later, {"thread": True}, TypeError, "later(): thread=True is for plain functions"),
    (add, {"timeout": 0}, ValueError, "add(): timeout must be more than 0 seconds, not 0"),
    (add, {"max_concurrency": 0}, ValueError, "add(): max_concurrency must be at least 1, not 0"),
    (takes_opaque, {}, TypeError, "takes_opaque(): parameter 'it' has the type Opaque, which cannot be served"),
    (gives_opaque, {}, TypeError, "gives_opaque(): the result has the type Opaque, which cannot be served"),
    (takes_many, {}, TypeError, "takes_many(): *items cannot be served; name each parameter"),
    (takes_names, {}, TypeError, "takes_names(): **names cannot be served; name each parameter"),
    (yields, {}, TypeError, "yields(): a function that yields cannot be served"),
    (unresolved, {}, TypeError, "unresolved(): an annotation cannot be resolved: name 'Nowhere' is not defined"),
    (add, {"speed": 1}, TypeError, "speed"),
)


@pytest.mark.parametrize(("function", "options", "kind", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_served_is_refused(function: Any, options: Any, kind: type[Exception], text: str) -> None:
    """The text names function, parameter and reason; nothing is registered."""
    server = Server()
    with pytest.raises(kind, match=re.escape(text)):
        server(**options)(function)
    assert server.procedures == {}


def test_a_name_given_by_position_is_refused() -> None:
    """The text shows how it is given."""
    with pytest.raises(TypeError, match=re.escape("@server('sum') takes options by name: @server(name='sum')")):
        Server()("sum")


def test_a_name_that_is_taken_is_refused() -> None:
    """The text names both functions; the first stays."""
    server = Server()
    server(add)
    with pytest.raises(
        ValueError, match=r"later\(\): the name 'add' is taken by add\(\) of .*give it another by name="
    ):
        server(name="add")(later)
    assert server.procedures["add"].function is add


def test_the_function_comes_back_unchanged() -> None:
    """With options and without."""
    server = Server()
    assert server(add) is add
    assert server(name="other.add", readonly=True)(add) is add
    assert sorted(server.procedures) == ["add", "other.add"]


def test_options_stand_in_the_spec() -> None:
    """Each option is kept as it was given; tags become a tuple."""
    server = Server()
    server(readonly=True, thread=True, timeout=2.0, max_concurrency=3, tags=["a"], deprecated=True)(add)
    spec = server.procedures["add"]
    assert (spec.readonly, spec.thread, spec.deprecated, spec.tags) == (True, True, True, ("a",))
    assert (spec.timeout, spec.max_concurrency, spec.doc) == (2.0, 3, "Add two numbers.")


# ---- namespaces and objects


class Users:
    """An object whose methods are served."""

    def __init__(self, greeting: str) -> None:
        self.greeting = greeting
        self.callback: Callable[[], None] = self.greet  # of the instance: not served

    def greet(self, name: str, ctx: Context) -> str:
        return f"{self.greeting} {name} {ctx.peer.protocol}"

    async def find(self, id: int) -> int:
        return id

    @staticmethod
    def static(a: int) -> int:
        return a

    @classmethod
    def kind(cls) -> str:
        return cls.__name__

    def _private(self) -> None:
        pass


async def test_the_methods_of_an_object_are_served() -> None:
    """Public ones of its class, under the prefix, bound to the object; also static and class methods."""
    server = Server()
    server.include(Users("hello"), prefix="users")
    assert sorted(server.procedures) == ["users.find", "users.greet", "users.kind", "users.static"]
    async with connect(server) as client:
        assert await client.users.greet("x") == "hello x native"
        assert [await client.users.find(id=3), await client.users.static(4)] == [3, 4]
        assert await client.users.kind() == "Users"


@pytest.mark.parametrize(
    ("other", "prefix", "kind", "text"),
    [
        (Users, "users", TypeError, "include(Users): give an instance, include(Users(…), prefix=…)"),
        (Users("a"), None, ValueError, "include(Users object) needs a prefix"),
        (Opaque(), "o", ValueError, "include(Opaque object): its class has no public methods to serve"),
    ],
)
def test_what_cannot_be_included_is_refused(other: Any, prefix: Any, kind: type[Exception], text: str) -> None:
    """The text says what to give instead."""
    with pytest.raises(kind, match=re.escape(text)):
        Server().include(other, prefix=prefix)


async def test_a_namespace_is_served_under_its_prefix() -> None:
    """Its procedures have dotted names, of their own by name=, and one more prefix where include gives it."""
    users = Namespace("users")
    users(add)
    users(name="more.add")(add)
    server = Server()
    server.include(users)
    server.include(users, prefix="v2")
    assert sorted(server.procedures) == ["users.add", "users.more.add", "v2.users.add", "v2.users.more.add"]
    async with connect(server) as client:
        assert await client.v2.users.add(2, 3) == 5


@pytest.mark.parametrize("prefix", ["", "a b", "a.", "1"])
def test_a_prefix_must_be_identifiers(prefix: str) -> None:
    """Joined by dots; the text shows what was given."""
    with pytest.raises(ValueError, match=re.escape(f"must be identifiers joined by dots, not {prefix!r}")):
        Namespace(prefix)


@pytest.mark.parametrize(
    ("prefix", "text"),
    [("a b", "must be identifiers"), ("rpc", "is reserved"), ("x" * 250, "is longer than 255 bytes")],
)
def test_the_prefix_of_an_include_is_checked(prefix: str, text: str) -> None:
    """What it makes of a namespace's names, and of a method's, must be names that @server takes."""
    server, users = Server(), Namespace("users")
    users(add)
    for other in (users, Users("hello")):
        with pytest.raises(ValueError, match=text):
            server.include(other, prefix=prefix)
    assert server.procedures == {}


def test_an_include_that_fails_adds_nothing() -> None:
    """One name that is taken leaves the registry as it was."""
    server, users = Server(), Namespace("users")
    users(add)
    users(later)
    server(name="users.later")(later)
    with pytest.raises(ValueError, match=re.escape("include(Namespace('users')): the name 'users.later' is taken")):
        server.include(users)
    assert list(server.procedures) == ["users.later"]


# ---- a running service


@pytest.mark.parametrize("codec", ["msgpack", "json"])
async def test_a_late_procedure_joins_native_connections(codec: str) -> None:
    """An open connection calls it; the document has it too."""
    server = Server()
    async with connect(server, codec=codec) as client:
        with pytest.raises(MethodNotFound):
            await client.add(2, 3)
        assert (await client.rpc.discover())["methods"] == []
        server(add)
        assert await client.add(2, 3) == 5
        assert [method["name"] for method in (await client.rpc.discover())["methods"]] == ["add"]
        with pytest.raises(InvalidParams):
            await client.add("x", 3)


async def test_a_late_procedure_joins_json_rpc() -> None:
    """An open connection calls it, and hears what is wrong with its parameters."""
    server = Server()
    async with json_client(server) as client:
        with pytest.raises(MethodNotFound):
            await client.call("add", 2, 3)
        server(add)
        assert await client.call("add", 2, 3) == 5
        with pytest.raises(InvalidParams, match="add"):
            await client.call("add", 2)


async def test_discover_gives_the_document() -> None:
    """Over native frames and JSON-RPC alike: name, version and procedures, itself not among them."""
    server = Server("shop", "1.2")
    server(add)
    async with connect(server) as client, json_client(server) as other:
        document = await client.call("rpc.discover", result_type=Document)
        assert (document.info.title, document.info.version) == ("shop", "1.2")
        assert [method.name for method in document.methods] == ["add"]
        assert msgspec.to_builtins(document) == await other.call("rpc.discover")
        with pytest.raises(InvalidParams, match=r"rpc\.discover"):
            await other.call("rpc.discover", 1)


async def test_a_binding_is_made_once() -> None:
    """One for each codec; a codec that there is not is a LookupError that names those there are."""
    server = Server()
    runtime = Runtime(server, Limits())
    assert runtime.native("json") is runtime.native("json")
    assert runtime.native("json") is not runtime.native("msgpack")
    assert runtime.jsonrpc() is runtime.jsonrpc()
    with pytest.raises(LookupError, match="no codec is named 'pickle'; there are: json, msgpack, raw"):
        runtime.native("pickle")


# ---- codecs


async def test_the_raw_codec_carries_bytes_and_refuses_the_rest() -> None:
    """One bytes parameter is called; another signature is Unimplemented, says why, and harms nobody."""
    server = Server()
    server(add)

    @server
    def upper(data: bytes) -> bytes:
        return data.upper()

    async with connect(server, codec="raw") as client:
        assert await client.upper(b"abc") == b"ABC"
        with pytest.raises(Unimplemented, match="add cannot be called with this connection's codec: the raw codec"):
            await client.add(b"abc")
        assert await client.upper(b"d") == b"D"


class Reversed(MsgpackCodec):
    """MessagePack, backwards."""

    def bind(self, kind: Any, /) -> Any:
        encode, decode = super().bind(kind)
        return lambda value: encode(value)[::-1], lambda data: decode(data[::-1])


async def test_a_registered_codec_carries_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in carries values, errors and refusals of parameters of whoever asks for it by name."""
    monkeypatch.setattr("rpcfast.codecs._codecs", dict(_codecs))
    register_codec("reversed", Reversed())
    server = Server()
    server(add)
    async with connect(server, codec="reversed") as client, connect(server) as other:
        assert await asyncio.gather(client.add(2, 3), other.add(2, 3)) == [5, 5]
        assert await client.add(a=2, b=3) == 5
        with pytest.raises(InvalidParams) as caught:
            await client.add("x", None)
        assert [error["path"] for error in caught.value.data["errors"]] == ["$.a", "$.b"]
