"""A signature becomes a description, or is refused with a text that names function, parameter and reason."""
# ruff: noqa: D103 - a procedure that is only described says all in its signature

import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Optional, TypedDict

import msgspec
import pydantic
import pytest

from rpcfast.schema import (
    MAX_NAME,
    custom_schema,
    custom_types,
    decode_custom,
    describe,
    encode_custom,
    encode_custom_json,
    is_open,
    is_pydantic,
    register_type,
    type_name,
    walk,
)


class Here:
    """What is injected."""


class Celsius:
    """A class that is registered."""

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


class Kelvin(Celsius):
    """A subclass of one."""


class Unknown:
    """A class that nobody registered."""


class Model(pydantic.BaseModel):
    """A pydantic model."""

    number: int = pydantic.Field(gt=0)
    when: datetime | None = None


class Tree(msgspec.Struct):
    """A type that contains itself."""

    children: list["Tree"] = []


class Node(msgspec.Struct):
    """Two types that contain each other: one."""

    leaf: Optional["Leaf"] = None


class Leaf(msgspec.Struct):
    """And the other."""

    node: Node | None = None


class Record(TypedDict):
    """A dict with known members."""

    a: int


@dataclass
class Point:
    """A dataclass."""

    x: int
    y: list[float]


def to_celsius(value: Any) -> Celsius:
    """Read degrees."""
    if value < -273.15:
        raise ValueError("colder than cold")
    return Celsius(value)


register_type(Celsius, encode=lambda value: value.degrees, decode=to_celsius, schema={"type": "number"})


# ---- descriptions


def sample(a: int, /, b: str = "x", *, c: list[int] | None = None, d: float) -> dict[str, int]:
    """Say what it does.

    And more.
    """


async def asynchronous(a: int) -> None: ...


def bare(a, b=1): ...


def test_description_of_a_function() -> None:
    """Name, parameters in order, result and text are those of the function; options are kept."""
    spec = describe(sample, tags=("t",), readonly=True, timeout=2.0)
    assert (spec.name, spec.function, spec.result) == ("sample", sample, dict[str, int])
    assert spec.doc == "Say what it does.\n\nAnd more."
    assert [(p.name, p.required, p.keyword_only) for p in spec.parameters] == [
        ("a", True, False),
        ("b", False, False),
        ("c", False, True),
        ("d", True, True),
    ]
    assert [p.type for p in spec.parameters] == [int, str, list[int] | None, float]
    assert [p.default for p in spec.parameters] == [msgspec.NODEFAULT, "x", None, msgspec.NODEFAULT]
    assert (spec.tags, spec.readonly, spec.timeout) == (("t",), True, 2.0)
    assert not spec.is_async


def test_function_without_annotations() -> None:
    """What is not annotated takes and gives anything."""
    spec = describe(bare)
    assert [p.type for p in spec.parameters] == [Any, Any]
    assert spec.result is Any


class Service:
    """Things that can be called, of several kinds."""

    def method(self, a: int) -> int: ...
    async def later(self) -> None: ...
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (sample, False),
        (asynchronous, True),
        (Service().method, False),
        (Service().later, True),
        (functools.partial(asynchronous, 1), True),
    ],
    ids=str,
)
def test_what_is_async_is_seen(function: Any, is_async: bool) -> None:
    """Functions, methods and partial functions are told apart by whether they must be awaited."""
    assert describe(function, name="f").is_async is is_async


def test_object_that_is_called_asynchronously() -> None:
    """An object with an async `__call__` is async."""
    assert describe(Service(), name="f").is_async


def test_context_is_injected_and_never_travels() -> None:
    """The parameter of the injected class is no parameter of the procedure; its place is kept."""

    def first(here: Here, a: int) -> None: ...
    def last(a: int, here: Here) -> None: ...
    def by_name(a: int, *, here: Here) -> None: ...
    def without(a: int) -> None: ...

    specs = [describe(function, inject=Here) for function in (first, last, by_name, without)]
    assert [[p.name for p in spec.parameters] for spec in specs] == [["a"]] * 4
    assert [(spec.injected, spec.injected_at) for spec in specs] == [
        ("here", 0),
        ("here", 1),
        ("here", None),
        (None, None),
    ]


# ---- what is refused


def yields() -> Any:
    yield 1


async def yields_later() -> Any:
    yield 1


def stars(a: int, *rest: int) -> None: ...
def double_stars(**options: int) -> None: ...
def strange(a: int, b: Unknown) -> None: ...
def strange_result() -> Unknown: ...
def strange_inside(a: dict[str, list[Unknown]]) -> None: ...
def impossible(a: dict[str, int] | dict[str, str]) -> None: ...
def unresolved(a: "Missing") -> None: ...  # noqa: F821
def malformed(a: "list[") -> None: ...  # noqa: F722
def no_such_member(a: "msgspec.Missing") -> None: ...


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (yields, TypeError, r"yields\(\): a function that yields cannot be served"),
        (yields_later, TypeError, r"yields_later\(\): a function that yields cannot be served"),
        (stars, TypeError, r"stars\(\): \*rest cannot be served; name each parameter"),
        (double_stars, TypeError, r"double_stars\(\): \*\*options cannot be served"),
        (strange, TypeError, r"strange\(\): parameter 'b' has the type Unknown, which cannot be served; register it"),
        (strange_result, TypeError, r"strange_result\(\): the result has the type Unknown"),
        (strange_inside, TypeError, r"strange_inside\(\): parameter 'a' has the type Unknown"),
        (impossible, TypeError, r"impossible\(\): parameter 'a' has a type that cannot be served: Type unions"),
        (unresolved, TypeError, r"unresolved\(\): an annotation cannot be resolved: name 'Missing' is not defined"),
        (malformed, TypeError, r"malformed\(\): an annotation cannot be resolved"),
        (no_such_member, TypeError, r"no_such_member\(\): an annotation cannot be resolved"),
        (lambda: None, ValueError, r"the name '<lambda>' must be identifiers joined by dots"),
    ],
    ids=str,
)
def test_signature_that_cannot_be_served(function: Any, error: type[Exception], text: str) -> None:
    """It is refused with function, parameter and reason."""
    with pytest.raises(error, match=text):
        describe(function)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "must be identifiers joined by dots"),
        ("a..b", "must be identifiers joined by dots"),
        ("a b", "must be identifiers joined by dots"),
        ("1a", "must be identifiers joined by dots"),
        ("rpc.discover", "is reserved"),
        ("x" * (MAX_NAME + 1), f"longer than {MAX_NAME} bytes"),
        ("ü" * (MAX_NAME // 2 + 1), f"longer than {MAX_NAME} bytes"),
    ],
)
def test_name_that_cannot_be_served(name: str, reason: str) -> None:
    """A name is refused with its reason."""
    with pytest.raises(ValueError, match=reason):
        describe(sample, name=name)


@pytest.mark.parametrize("name", ["a", "users.get", "grün.über", "x" * MAX_NAME, "rpc", "rpcs.x"])
def test_name_that_can_be_served(name: str) -> None:
    """Names of identifiers and dots are kept."""
    assert describe(sample, name=name).name == name


@pytest.mark.parametrize(
    ("function", "options", "error"),
    [
        (asynchronous, {"thread": True}, TypeError),
        (sample, {"timeout": 0}, ValueError),
        (sample, {"timeout": -1.0}, ValueError),
        (sample, {"max_concurrency": 0}, ValueError),
    ],
)
def test_options_that_make_no_sense(function: Any, options: dict[str, Any], error: type[Exception]) -> None:
    """An option that contradicts the function or itself is refused by name."""
    with pytest.raises(error, match=next(iter(options))):
        describe(function, **options)


# ---- parameters


def test_parameters_by_name_and_position() -> None:
    """By name every parameter counts and no other; by position those before the star."""
    spec = describe(sample)
    values = msgspec.convert({"a": 1, "d": 2.0}, spec.by_name)
    assert msgspec.structs.astuple(values) == (1, "x", None, 2.0)
    assert msgspec.structs.astuple(msgspec.convert([1], spec.positional)) == (1, "x")
    for wrong in ({"a": 1}, {"a": 1, "d": 2.0, "e": 3}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, spec.by_name)
    for wrong in ([], [1, "x", None], ["1"]):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, spec.positional)


def test_plain_call_is_exactly_a_tuple() -> None:
    """Without defaults and keyword-only parameters, a call by position is one typed tuple."""

    def plain(a: int, b: str) -> None: ...
    def nothing() -> None: ...

    assert describe(plain).plain
    assert msgspec.convert([1, "x"], describe(plain).params) == (1, "x")
    assert msgspec.convert([], describe(nothing).params) == ()
    assert not describe(sample).plain
    assert not describe(bare).plain


def test_default_is_shared_as_in_python() -> None:
    """A default is the function's own object, whatever its type."""
    default: Any = object()

    def function(a: Any = default) -> None: ...

    assert msgspec.convert({}, describe(function).by_name).a is default


# ---- types that msgspec does not know


def test_registered_type_travels() -> None:
    """A registered class and its subclasses are served, written, read and described."""

    def function(a: Celsius, b: list[Kelvin]) -> Celsius | None: ...

    describe(function)
    assert encode_custom(Celsius(20.5)) == encode_custom_json(Kelvin(20.5)) == 20.5
    assert decode_custom(Celsius, 3).degrees == 3
    assert custom_schema(Celsius) == {"type": "number"}


def test_refusal_of_a_registered_type_has_a_place() -> None:
    """What `decode` raises becomes an error of the parameters, with its place."""
    with pytest.raises(msgspec.ValidationError, match=r"colder than cold - at `\$\[0\]`"):
        msgspec.convert([-300], list[Celsius], dec_hook=decode_custom)


def test_type_is_registered_once() -> None:
    """A second registration is refused, so that no module changes another one's types."""
    with pytest.raises(ValueError, match="Celsius is registered already"):
        register_type(Celsius, encode=float, decode=float)


def test_unknown_type_is_refused_in_words() -> None:
    """A value or class that nobody registered names itself and the remedy."""
    with pytest.raises(TypeError, match=r"a value of type Unknown cannot be sent; see rpcfast\.register_type"):
        encode_custom(Unknown())
    with pytest.raises(TypeError, match=r"Unknown is not a type that rpcfast knows; see rpcfast\.register_type"):
        decode_custom(Unknown, 1)
    assert custom_schema(Unknown) == {}


def test_pydantic_model_travels() -> None:
    """A pydantic model is served, validated and written by pydantic."""

    def function(a: Model) -> list[Model]: ...

    describe(function)
    when = datetime(2024, 5, 6, tzinfo=UTC)
    model = decode_custom(Model, {"number": "7", "when": when})
    assert model == Model(number=7, when=when)
    assert encode_custom(model) == {"number": 7, "when": when}
    assert msgspec.json.decode(msgspec.json.encode(model, enc_hook=encode_custom_json))["number"] == 7
    assert custom_schema(Model)["properties"]["number"]["exclusiveMinimum"] == 0
    assert is_pydantic(Model)
    assert not is_pydantic(model)
    with pytest.raises(pydantic.ValidationError):
        decode_custom(Model, {"number": -1})


# ---- looking at types


@pytest.mark.parametrize(
    "kind", [Any, list, dict, Tree, Node, Celsius, Model, list[Any], dict[str, Tree], msgspec.Raw], ids=repr
)
def test_types_that_may_nest_without_bound(kind: Any) -> None:
    """Anything, bare containers, types that contain themselves, and those that only a hook reads are open."""
    assert is_open(kind)


@pytest.mark.parametrize(
    "kind", [int, list[int], dict[str, list[str]], Point, Record, int | None, tuple[Point, Point]], ids=repr
)
def test_types_that_cannot(kind: Any) -> None:
    """Types of a known shape are closed, also when a part stands in them twice."""
    assert not is_open(kind)


def test_walk_ends_on_recursive_types() -> None:
    """Every node is seen once, and custom classes are found below everything."""
    nodes = walk(msgspec.inspect.type_info(Tree))
    assert len({id(node) for node in nodes}) == len(nodes)
    assert custom_types(msgspec.inspect.type_info(dict[str, list[Celsius | None]])) == [Celsius]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (int, "int"),
        (None, "None"),
        (type(None), "None"),
        (Any, "Any"),
        (list[int], "list[int]"),
        (dict[str, Any], "dict[str, Any]"),
        (int | None, "int | None"),
        (Annotated[int, msgspec.Meta(ge=0)], "int"),
        (Point, "Point"),
    ],
    ids=repr,
)
def test_type_name(kind: Any, text: str) -> None:
    """A type is named as a person writes it."""
    assert type_name(kind) == text
