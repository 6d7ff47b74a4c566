"""The OpenRPC document: all that a caller may know of a procedure stands in it, and every reference leads somewhere."""

import datetime as dt
import enum
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from rpcfast import AsyncClient, Client, Context, Namespace, Server, register_type
from rpcfast.codegen.openrpc import Document, Method, make_document
from rpcfast.integers import UInt64
from rpcfast.schema import describe


class Cat(msgspec.Struct, tag="cat"):
    """A cat."""

    name: str


class Dog(msgspec.Struct, tag="dog"):
    """A dog."""

    name: str
    friends: list["Dog"] = []


class Colour(enum.Enum):
    """An enum."""

    RED = "red"


class Tree(pydantic.BaseModel):
    """A pydantic model that contains itself."""

    value: Annotated[int, pydantic.Field(ge=0)]
    children: list["Tree"] = []


class Opaque:
    """A type of a user's own, registered without a schema."""


register_type(Opaque, encode=str, decode=lambda _: Opaque())
NOTHING: Any = object()


def method_of(function: Any, **options: Any) -> Method:
    """The only method of the document of one function."""
    return make_document("test", "1", [describe(function, inject=Context, **options)]).methods[0]


def document_of(*functions: Any) -> dict[str, Any]:
    """The document of some functions, as it travels."""
    return msgspec.to_builtins(
        make_document("test", "1", [describe(function, inject=Context) for function in functions])
    )


def references(node: Any) -> Iterator[str]:
    """Every "$ref" and discriminator target below a node."""
    if isinstance(node, dict):
        for key, value in node.items():
            if isinstance(value, str) and (key == "$ref" or value.startswith("#/")):
                yield value
            yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def test_a_document_has_the_service_and_its_methods_in_order() -> None:
    """Title and version are the service's; methods are sorted by name."""

    def zebra() -> None: ...
    def ant() -> None: ...

    document = make_document("zoo", "1.2", [describe(zebra), describe(ant)])
    assert (document.openrpc, document.info.title, document.info.version) == ("1.3.2", "zoo", "1.2")
    assert [method.name for method in document.methods] == ["ant", "zebra"]


def test_a_method_tells_what_its_options_and_docstring_say() -> None:
    """Summary and description come from the docstring; tags, `deprecated` and `readonly` from the options."""

    def find(text: str) -> list[str]:
        """Find a text.

        Everywhere.
        """
        return [text]

    method = msgspec.to_builtins(method_of(find, name="a.find", readonly=True, deprecated=True, tags=("x", "y")))
    assert method == {
        "name": "a.find",
        "summary": "Find a text.",
        "description": "Everywhere.",
        "tags": [{"name": "x"}, {"name": "y"}],
        "params": [{"name": "text", "required": True, "schema": {"type": "string"}}],
        "result": {"name": "result", "schema": {"type": "array", "items": {"type": "string"}}},
        "deprecated": True,
        "x-readonly": True,
    }


def test_defaults_stand_in_the_schema() -> None:
    """A default is written as JSON; one that has no JSON only makes its parameter optional."""

    def f(
        a: int, b: Colour = Colour.RED, c: dt.date = dt.date(2026, 1, 2), d: bytes = b"x", e: str = NOTHING
    ) -> None: ...

    params = method_of(f).params
    assert [param.required for param in params] == [True, False, False, False, False]
    assert [param.schema.get("default", "-") for param in params] == ["-", "red", "2026-01-02", "eA==", "-"]


def test_a_required_keyword_only_parameter_rules_out_calls_by_position() -> None:
    """Only then is the parameter structure "by-name"."""

    def optional(*, a: int = 1) -> None: ...
    def required(*, a: int) -> None: ...

    assert [method_of(f).param_structure for f in (optional, required)] == ["either", "by-name"]


def test_the_context_is_not_in_the_document() -> None:
    """What the server fills in is no parameter for callers."""

    def f(ctx: Context, a: int) -> None: ...

    assert [param.name for param in method_of(f).params] == ["a"]


def test_constraints_and_wide_integers_are_in_the_schema() -> None:
    """`msgspec.Meta` and the integers of fixed width become the keywords of JSON Schema."""

    def f(a: Annotated[str, msgspec.Meta(max_length=3)], b: UInt64, c: Literal["x", "y"]) -> None: ...

    assert [param.schema for param in method_of(f).params] == [
        {"type": "string", "maxLength": 3},
        {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},
        {"enum": ["x", "y"]},
    ]


def test_every_reference_leads_to_a_component() -> None:
    """Structs, recursive ones, tagged unions, enums, pydantic models that contain themselves: all are found."""

    def f(a: Cat | Dog, b: Tree, c: Colour) -> dict[str, Dog]: ...

    document = document_of(f)
    found = set(references(document))
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert known == {f"#/components/schemas/{name}" for name in ("Cat", "Dog", "Tree", "Colour")}
    assert found == known


def test_models_of_one_name_stay_apart() -> None:
    """A pydantic model that is called as a Struct is gets another name, and its references follow."""

    class Dog(pydantic.BaseModel):  # the name of a Struct above
        puppies: list["Dog"] = []

    Dog.model_rebuild(_types_namespace={"Dog": Dog})
    struct = globals()["Dog"]

    def f(a, b): ...

    f.__annotations__ = {"a": struct, "b": Dog}
    components = document_of(f)["components"]["schemas"]
    assert set(components) == {"Dog", "Dog2"}
    assert set(references(components["Dog2"])) == {"#/components/schemas/Dog2"}
    assert set(references(components["Dog"])) == {"#/components/schemas/Dog"}


def test_a_registered_type_without_schema_may_be_anything() -> None:
    """The document only names the type."""

    def f(a: Opaque) -> None: ...

    assert method_of(f).params[0].schema == {"title": "Opaque"}


# ---- rpc.discover


async def test_discover_gives_the_document_and_follows_the_service() -> None:
    """`rpc.discover` gives the document; a procedure that joins later is in the next. It is no procedure itself."""
    server = Server("zoo", "1.2")
    server(name="first")(lambda: None)
    async with AsyncClient(server) as client:
        before = await client.call("rpc.discover", result_type=Document)
        server(name="second")(lambda: None)
        after = await client.call("rpc.discover", result_type=Document)
    assert (before.info.title, before.info.version) == ("zoo", "1.2")
    assert [method.name for method in before.methods] == ["first"]
    assert [method.name for method in after.methods] == ["first", "second"]
    assert set(server.procedures) == {"first", "second"}


@pytest.mark.parametrize("codec", ["msgpack", "json"])
def test_discover_is_the_same_in_every_codec(codec: str) -> None:
    """What travels is the document, member for member."""
    server = Server()
    server(name="f", readonly=True)(lambda: None)
    expected = msgspec.to_builtins(make_document("rpcfast", "0", server.procedures.values()))
    with Client(server, codec=codec) as client:
        assert client.rpc.discover() == expected
    assert json.dumps(expected).count("x-readonly") == 1


def test_names_of_the_protocol_are_refused() -> None:
    """Nobody can take `rpc.discover`, neither directly nor through a namespace."""
    with pytest.raises(ValueError, match="reserved"):
        Server()(name="rpc.discover")(lambda: None)
    with pytest.raises(ValueError, match="reserved"):
        Namespace("rpc")(name="discover")(lambda: None)
