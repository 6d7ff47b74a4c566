"""`explain` as its callers use it: all errors at once, the same verdict as msgspec, bounded work."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import sys
import uuid
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from rpcfast.validation import ERROR_LIMIT, explain
from rpcfast.validation.checks import Walk
from rpcfast.validation.compiling import plan_of


class Parameter(msgspec.Struct, frozen=True):
    """The least that `explain` asks of a parameter."""

    name: str
    type: Any
    required: bool = True
    keyword_only: bool = False


class Circle(msgspec.Struct, tag="circle"):
    """A member of a tagged union."""

    radius: float


class Square(msgspec.Struct, tag="square"):
    """Another member of it."""

    side: float
    name: str = ""


class PairA(msgspec.Struct, tag=1, array_like=True):
    """A member of a union of arrays, with a number as its tag."""

    x: int
    y: str = ""


class PairB(msgspec.Struct, tag=2, array_like=True, forbid_unknown_fields=True):
    """Another member of it, which takes nothing more than its fields."""

    x: str


class Closed(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A Struct that refuses unknown fields and renames its own."""

    first_name: str
    age: Annotated[int, Meta(ge=0)] = 0


class Node(msgspec.Struct):
    """A type that contains itself."""

    value: int = 0
    next: Optional["Node"] = None
    children: list["Node"] = []


class Ordered(msgspec.Struct):
    """A Struct with code of its own."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            msg = "low must not exceed high"
            raise ValueError(msg)


@dataclasses.dataclass
class Data:
    """A dataclass."""

    a: int
    b: list[Circle | Square] = dataclasses.field(default_factory=list)


@attrs.define
class Attrs:
    """An attrs class."""

    x: int
    y: str = "y"


class Typed(TypedDict):
    """A TypedDict with an optional key."""

    a: int
    b: NotRequired[str]


class Named(NamedTuple):
    """A NamedTuple with a default."""

    a: int
    b: str = ""


class Colour(enum.Enum):
    """An enum of texts."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """An enum of integers."""

    LOW = 1
    HIGH = 2


class Model(pydantic.BaseModel):
    """A pydantic model."""

    count: int
    tags: list[str] = []


class Money:
    """A type that only a hook can read."""


def read(cls: type, value: Any) -> Any:
    """Read `Money` and pydantic models, as a codec's hook would."""
    if cls is Money:
        if not isinstance(value, str):
            msg = "money is written as text"
            raise TypeError(msg)
        return Money()
    return cls.model_validate(value)  # type: ignore[attr-defined]


def one(kind: Any, value: Any, **options: Any) -> list[tuple[list[str | int], str]]:
    """Give the place (below the only parameter) and type of every error."""
    return [(error["loc"][1:], error["type"]) for error in explain([Parameter("p", kind)], [value], **options)]


THREE = [Parameter("a", int), Parameter("b", str, required=False), Parameter("c", bool, keyword_only=True)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, "b"], [(["c"], "missing")]),
        ({"a": 1, "c": True}, []),
        ({}, [(["a"], "missing"), (["c"], "missing")]),
        (["x", 2], [(["a"], "int_type"), (["b"], "string_type"), (["c"], "missing")]),
        ({"a": "x", "b": 2, "c": 3}, [(["a"], "int_type"), (["b"], "string_type"), (["c"], "bool_type")]),
        ({"a": 1, "c": True, "d": 0}, [(["d"], "unexpected_keyword_argument")]),
        ([1, "b", True], [(["c"], "unexpected_positional_argument")]),
        ([1, "b", True, 4], [(["c"], "unexpected_positional_argument"), ([3], "unexpected_positional_argument")]),
        (None, [([], "arguments_type")]),
        ("text", [([], "arguments_type")]),
    ],
)
def test_parameters(value: object, expected: list[Any]) -> None:
    """Missing, surplus, unknown and wrong parameters are all told in one go, by position and by name."""
    assert [(error["loc"], error["type"]) for error in explain(THREE, value)] == expected


def test_entry_has_the_public_shape() -> None:
    """An entry has exactly the four keys that users are promised."""
    assert explain([Parameter("a", list[Closed])], [[{"firstName": 5}]]) == [
        {
            "loc": ["a", 0, "firstName"],
            "path": "$.a[0].firstName",
            "type": "string_type",
            "message": "Expected text, got an integer",
        }
    ]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (list[int], [1, "x", None], [([1], "int_type"), ([2], "int_type")]),
        (list[int], {}, [([], "list_type")]),
        (set[int], ["x"], [([0], "int_type")]),
        (tuple[int, str], ["x", 1], [([0], "int_type"), ([1], "string_type")]),
        (tuple[int, str], [1], [([], "too_short")]),
        (tuple[int, str], ["x", "", ""], [([], "too_long"), ([0], "int_type")]),
        (dict[int, str], {"1": "a", "x": 2}, [(["x", "[key]"], "int_type"), (["x"], "string_type")]),
        (dict[str, int], [], [([], "dict_type")]),
        (Annotated[dict[str, int], Meta(min_length=2)], {"a": "x"}, [([], "too_short"), (["a"], "int_type")]),
        (Annotated[list[int], Meta(max_length=1)], [1, 2], [([], "too_long")]),
        (
            Closed,
            {"age": -1, "x": 0},
            [(["firstName"], "missing"), (["age"], "greater_than_equal"), (["x"], "extra_forbidden")],
        ),
        (Data, {"b": [{"type": "circle"}]}, [(["a"], "missing"), (["b", 0, "radius"], "missing")]),
        (Attrs, {"y": 3}, [(["x"], "missing"), (["y"], "string_type")]),
        (Typed, {"b": 3}, [(["a"], "missing"), (["b"], "string_type")]),
        (Typed, {"a": 1, 5: 0}, [([5, "[key]"], "string_type")]),
        (Named, ["x", 1], [([0], "int_type"), ([1], "string_type")]),
        (Named, [], [([], "too_short")]),
        (PairA | PairB, [1, "x"], [([1], "int_type")]),
        (PairA | PairB, [], [([0], "union_tag_not_found")]),
        (PairA | PairB, [2, 3, 4], [([], "too_long"), ([1], "string_type")]),
        (Circle | Square, {"radius": 1}, [(["type"], "union_tag_not_found")]),
        (Circle | Square, {"type": "cube"}, [(["type"], "union_tag_invalid")]),
        (Circle | Square, {"type": []}, [(["type"], "union_tag_invalid")]),
        (Circle, {"type": "square", "radius": 1}, [(["type"], "union_tag_invalid")]),
        (Circle | None, 5, [([], "dict_type")]),
        (int | str, 1.5, [([], "union_error")]),
        (list[int] | dict[str, int] | None, {"a": "x"}, [(["a"], "int_type")]),
        (Literal["a", 1], None, [([], "literal_error")]),
        (Colour, "green", [([], "enum")]),
        (Level | None, 7, [([], "enum")]),
        (Ordered, {"low": 2, "high": 1}, [([], "value_error")]),
        (list[Ordered], [{"low": "x"}], [([0, "low"], "int_type"), ([0, "high"], "missing")]),
        (Annotated[int, Meta(gt=3, lt=5)], 3, [([], "greater_than")]),
        (Annotated[int, Meta(gt=3, lt=5)], 5, [([], "less_than")]),
        (Annotated[float, Meta(gt=3)], 3.0, [([], "greater_than")]),
        (Annotated[int, Meta(le=3, description="small")], 4, [([], "less_than_equal")]),
        (Annotated[int, Meta(multiple_of=3)], 4, [([], "multiple_of")]),
        (Annotated[str, Meta(min_length=2)], "x", [([], "string_too_short")]),
        (Annotated[str, Meta(max_length=2)], "xxx", [([], "string_too_long")]),
        (Annotated[str, Meta(pattern="^a")], "b", [([], "string_pattern_mismatch")]),
        (Annotated[dt.datetime, Meta(tz=True)], "2030-01-01T00:00:00", [([], "timezone_aware")]),
        (dt.datetime, "x", [([], "datetime_parsing")]),
        (dt.date, "x", [([], "date_parsing")]),
        (dt.time, "x", [([], "time_parsing")]),
        (dt.timedelta, "x", [([], "time_delta_parsing")]),
        (uuid.UUID, "x", [([], "uuid_parsing")]),
        (decimal.Decimal, "x", [([], "decimal_parsing")]),
        (bytes, "!", [([], "bytes_invalid_encoding")]),
        (list[Money], ["1 EUR", 1], [([1], "value_error")]),
        (
            list[Model],
            [{"count": "x", "tags": [1]}, {}],
            [([0, "count"], "int_parsing"), ([0, "tags", 0], "string_type"), ([1, "count"], "missing")],
        ),
    ],
)  # fmt: skip
def test_types(kind: Any, value: object, expected: list[Any]) -> None:
    """Every error of a value is found, with its place and pydantic's name for it."""
    assert one(kind, value, dec_hook=read) == expected


def test_texts_of_own_code_are_passed_on() -> None:
    """What a hook or `__post_init__` says is the message; what any other exception says is not."""

    def broken(cls: type, value: object) -> object:
        raise KeyError("secret")

    parameters = [Parameter("m", Money), Parameter("o", Ordered)]
    errors = explain(parameters, [1, {"low": 2, "high": 1}], dec_hook=read)
    assert [error["message"] for error in errors] == ["money is written as text", "low must not exceed high"]
    assert "secret" not in json.dumps(explain(parameters[:1], [1], dec_hook=broken))


def test_pydantic_needs_no_hook() -> None:
    """Without a hook a pydantic model validates itself; other custom types are refused without naming their class."""
    assert one(Model, {"count": 1}) == []
    assert one(Model, {"count": []}) == [(["count"], "int_type")]
    (error,) = explain([Parameter("m", Money)], [1])
    assert (error["type"], "Money" in error["message"]) == ("value_error", False)


def test_pydantic_with_endless_errors() -> None:
    """Pydantic cannot stop listing; where it has thousands of errors, one entry says so."""
    assert one(Model, {"count": 1, "tags": [1] * 5_000}) == [([], "too_many_errors")]


def test_unknown_tag_is_answered_with_the_known_ones() -> None:
    """A wrong tag is answered with the tags there are, not with the one that was sent."""
    (error,) = explain([Parameter("s", Circle | Square)], [{"type": "hunter2"}])
    assert (error["path"], error["message"]) == ("$.s.type", 'Expected one of "circle", "square"')


def test_msgpack_keys_and_bytes() -> None:
    """With msgpack's options text is no integer key and no bytes, but real ones are."""
    options: dict[str, Any] = {"str_keys": False, "builtin_types": (bytes, bytearray, memoryview)}
    kind = dict[int, bytes]
    assert one(kind, {1: b"x"}, **options) == []
    assert one(kind, {"1": "eA=="}, **options) == [(["1", "[key]"], "int_type"), (["1"], "bytes_type")]
    assert one(kind, {"1": "eA=="}) == []


def test_raw_is_no_error() -> None:
    """A `Raw` parameter takes anything, though msgspec can no longer read it from a decoded value."""
    assert one(msgspec.Raw, {"a": 1}) == []
    assert one(tuple[msgspec.Raw, int], [1, "x"]) == [([1], "int_type")]


def test_errors_are_limited() -> None:
    """A hundred errors are listed, then one entry says that there are more; exactly a hundred need none."""
    assert len(one(list[int], ["x"] * ERROR_LIMIT)) == ERROR_LIMIT
    errors = explain([Parameter("p", list[int])], [["x"] * (ERROR_LIMIT + 1)])
    assert len(errors) == ERROR_LIMIT + 1
    assert (errors[-1]["loc"], errors[-1]["type"]) == ([], "too_many_errors")
    assert len(explain([], {str(name): 0 for name in range(1000)})) == ERROR_LIMIT + 1


def test_long_lists_are_searched_to_their_end() -> None:
    """The errors of a list far longer than the steps are all found, since msgspec reads its sound parts."""
    values: list[Any] = [0] * 500_000
    values[3] = values[499_999] = "x"
    assert one(list[int], values) == [([3], "int_type"), ([499_999], "int_type")]
    numbers: dict[str, Any] = dict.fromkeys(map(str, range(100_000)), 0) | {"bad": "x"}
    assert one(dict[str, int], numbers) == [(["bad"], "int_type")]


def test_too_much_to_walk_still_gives_the_first_error() -> None:
    """Where a value is too large for the steps, msgspec's own first error is told, at the right place."""
    branch = {"children": [{"value": 1, "children": [{}] * 200} for _ in range(200)]}
    first, last = explain([Parameter("n", Node)], [branch | {"next": branch | {"next": {"value": "x"}}}])
    assert (first["path"], first["type"]) == ("$.n.next.next.value", "int_type")
    assert last["type"] == "too_many_errors"


@pytest.mark.parametrize("depth", [10, 100, 1_000, 100_000])
def test_depth_never_overflows(depth: int) -> None:
    """However deep a value is, there is an answer and no RecursionError, also beside another wrong parameter."""
    value: dict[str, Any] = {"value": "x"}
    for _ in range(depth):
        value = {"next": value}
    errors = explain([Parameter("n", Node), Parameter("i", int)], [value, "x"])
    assert [error["type"] for error in errors] == ["int_type" if depth <= 100 else "too_deep", "int_type"]


def test_little_stack_left_gives_an_answer() -> None:
    """Called with few frames left, it tells what it can."""
    value: dict[str, Any] = {"value": "x"}
    for _ in range(100):
        value = {"next": value}

    def deeper(frames: int) -> list[dict[str, Any]]:
        return deeper(frames - 1) if frames else explain([Parameter("n", Node)], [value])

    frame, used = sys._getframe(), 0
    while frame := frame.f_back:  # type: ignore[assignment]
        used += 1
    assert deeper(sys.getrecursionlimit() - used - 60)


SECRET = "s3cr3t-" * 50


@pytest.mark.parametrize(
    "kind",
    [int, Colour, Literal["a"], Circle | Square, uuid.UUID, Annotated[str, Meta(pattern="^a")], list[int], Money, Model,
     dt.date, decimal.Decimal, bytes, dict[int, int]],
)  # fmt: skip
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: {"type": v}, lambda v: [v]], ids=["bare", "tag", "item"])
def test_values_are_never_repeated(kind: Any, wrap: Callable[[str], Any]) -> None:
    """No error repeats the value, nor says a module's name."""
    text = json.dumps(explain([Parameter("p", kind)], [wrap(SECRET)]))
    assert SECRET[:7] not in text
    assert __name__ not in text


# --- The same verdict as msgspec --------------------------------------------------------------------------------------

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "a", "1", "red"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "x", "type", "1"]), inner, max_size=3)
    ),
    max_leaves=4,
)
NUMBERS = st.integers(-5, 5)
TEXTS = st.sampled_from(["", "a", "ab", "abc", "1"])

Case = tuple[Any, st.SearchStrategy[Any]]


def objects(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Draw objects with these members, sometimes spoilt."""
    return st.fixed_dictionaries({k: v | JUNK for k, v in required.items()}, optional=optional | {"zz": JUNK})


CIRCLES = objects({"radius": NUMBERS}, {"type": st.sampled_from(["circle", "square", 1])})
SQUARES = objects({"type": st.just("square"), "side": NUMBERS}, {"name": TEXTS})
NODES: st.SearchStrategy[Any] = st.deferred(
    lambda: objects({"value": NUMBERS}, {"next": NODES | st.none(), "children": st.lists(NODES, max_size=2)})
)
LEAVES: list[Case] = [
    (int, NUMBERS),
    (float, st.floats(-3, 3) | NUMBERS),
    (str, TEXTS),
    (bool, st.booleans()),
    (None, st.none()),
    (Any, JUNK),
    (bytes, st.sampled_from(["", "YQ==", "YQ"])),
    (Annotated[int, Meta(gt=1, multiple_of=2)], NUMBERS),
    (Annotated[int, Meta(ge=0)] | Annotated[str, Meta(max_length=2)] | None, NUMBERS | TEXTS),
    (Annotated[float, Meta(lt=1.5)], st.floats(0, 3)),
    (Annotated[str, Meta(min_length=1, max_length=2, pattern="^a")], TEXTS),
    (Annotated[list[int], Meta(min_length=1, max_length=2)], st.lists(NUMBERS, max_size=3)),
    (Annotated[set[int], Meta(min_length=2)], st.lists(NUMBERS, max_size=3)),
    (Annotated[dict[str, int], Meta(max_length=1)], st.dictionaries(TEXTS, NUMBERS, max_size=2)),
    (dt.datetime, st.datetimes().map(dt.datetime.isoformat) | st.just("2030-01-01T00:00:00Z")),
    (Annotated[dt.datetime, Meta(tz=False)], st.sampled_from(["2030-01-01T00:00:00Z", "2030-01-01T00:00:00"])),
    (dt.date, st.dates().map(dt.date.isoformat)),
    (dt.timedelta, st.sampled_from(["P1D", "PT1S", "P"])),
    (uuid.UUID, st.uuids().map(str)),
    (decimal.Decimal, st.decimals(allow_nan=False).map(str) | NUMBERS),
    (Literal["a", "b", 1], st.sampled_from(["a", "b", "c", 1, 2])),
    (Colour, st.sampled_from(["red", "blue", "green"])),
    (Level | None, st.sampled_from([1, 2, 3, None])),
    (Circle, CIRCLES),
    (Circle | Square, CIRCLES | SQUARES),
    (Circle | Square | int | None, CIRCLES | SQUARES | NUMBERS),
    (
        PairA | PairB,
        st.tuples(st.sampled_from([1, 2, 3]), NUMBERS | TEXTS).map(list) | st.lists(NUMBERS | TEXTS, max_size=3),
    ),
    (PairB | None, st.lists(st.just(2) | TEXTS, max_size=3)),
    (Closed, objects({"firstName": TEXTS}, {"age": NUMBERS})),
    (Node, NODES),
    (Ordered, objects({"low": NUMBERS, "high": NUMBERS}, {})),
    (Data, objects({"a": NUMBERS}, {"b": st.lists(CIRCLES | SQUARES, max_size=2)})),
    (Attrs, objects({"x": NUMBERS}, {"y": TEXTS})),
    (Typed, objects({"a": NUMBERS}, {"b": TEXTS})),
    (Named, st.lists(NUMBERS | TEXTS, max_size=3)),
    (Money, TEXTS | NUMBERS),
    (Model, objects({"count": NUMBERS}, {})),
]  # fmt: skip


def wrapped(cases: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    """Put types into containers, and their values into values of those."""
    return st.one_of(
        cases.map(lambda c: (list[c[0]], st.lists(c[1], max_size=3))),  # type: ignore[name-defined]
        cases.map(lambda c: (tuple[c[0], ...], st.lists(c[1], max_size=3))),  # type: ignore[name-defined]
        cases.map(lambda c: (dict[str, c[0]], st.dictionaries(TEXTS, c[1], max_size=3))),  # type: ignore[name-defined]
        cases.map(lambda c: (dict[int, c[0]], st.dictionaries(TEXTS, c[1], max_size=3))),  # type: ignore[name-defined]
        cases.map(lambda c: (list[c[0]] | int, st.lists(c[1], max_size=3) | JUNK)),  # type: ignore[name-defined]
        st.tuples(cases, cases).map(
            lambda two: (tuple[two[0][0], two[1][0]], st.tuples(two[0][1], two[1][1]).map(list))  # type: ignore[misc]
        ),
    )


CASES: st.SearchStrategy[Case] = st.recursive(st.sampled_from(LEAVES), wrapped, max_leaves=3)


@settings(max_examples=500, deadline=None)
@given(data=st.data(), cases=st.lists(CASES, min_size=1, max_size=3), strict=st.booleans(), str_keys=st.booleans())
def test_verdict_is_that_of_msgspec(data: st.DataObject, cases: list[Case], strict: bool, str_keys: bool) -> None:
    """A parameter has errors if and only if `msgspec.convert` refuses it, and each lies within that parameter."""
    values = [data.draw(values | JUNK) for _, values in cases]
    refused = set()
    for index, ((kind, _), value) in enumerate(zip(cases, values, strict=True)):
        try:
            msgspec.convert(value, kind, dec_hook=read, strict=strict, str_keys=str_keys)
        except msgspec.ValidationError:
            refused.add(f"p{index}")
    parameters = [Parameter(f"p{index}", kind) for index, (kind, _) in enumerate(cases)]
    errors = explain(parameters, values, dec_hook=read, strict=strict, str_keys=str_keys)
    assert {error["loc"][0] for error in errors} == refused
    assert json.loads(msgspec.json.encode(errors)) == errors


@settings(max_examples=500, deadline=None)
@given(data=st.data(), case=CASES)
def test_walk_alone_has_that_verdict(data: st.DataObject, case: Case) -> None:
    """The walk finds by itself what msgspec refuses, so that its own words are hardly ever needed instead."""
    kind, values = case
    value = data.draw(values | JUNK)
    convert = partial(msgspec.convert, dec_hook=read, str_keys=True)
    walk = Walk(convert)
    plan_of(kind).check(walk, value)
    assert bool(walk.errors) == (walk.refusal(value, kind) is not None)
