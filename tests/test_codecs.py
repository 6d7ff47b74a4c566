"""Codecs: what they carry, what they refuse, and the registry."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcfast import codecs
from rpcfast.codecs import (
    DECODE_ERRORS,
    MAX_NESTING,
    Codec,
    JsonCodec,
    bounded,
    decode_any,
    get_codec,
    nesting_of,
    register_codec,
)
from rpcfast.errors import ErrorBody
from rpcfast.schema import describe

both = pytest.mark.parametrize("codec", [get_codec("json"), get_codec("msgpack")], ids=["json", "msgpack"])


class Colour(Enum):
    """An enumeration."""

    RED = "red"


@dataclass
class Point:
    """A dataclass."""

    x: int
    name: str


class Circle(msgspec.Struct, tag=True):
    """A member of a tagged union."""

    radius: float


class Square(msgspec.Struct, tag=True):
    """Another."""

    side: float


class Tree(msgspec.Struct):
    """A type that contains itself."""

    child: "Tree | None" = None


VALUES: list[tuple[Any, Any]] = [
    (int, -(2**63)),
    (int, 2**64 - 1),
    (float, 0.1),
    (str, "grün \u2028 𝄞"),
    (bytes, b"\x00\xff"),
    (bool, True),
    (None, None),
    (list[float], [1.0, -0.5]),
    (list[list[float]], [[1.0], []]),
    (list[str], ["a", ""]),
    (tuple[int, str], (1, "x")),
    (dict[int, str], {1: "a"}),
    (set[int], {1, 2}),
    (Decimal, Decimal("0.12345678901234567890123")),
    (UUID, UUID(int=5)),
    (datetime, datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC)),
    (date, date(2024, 5, 6)),
    (time, time(7, 8)),
    (Colour, Colour.RED),
    (Point, Point(1, "p")),
    (Circle | Square, Square(2.0)),
    (int | None, None),
    (Any, {"a": [1, None, "x"]}),
    (ErrorBody, ErrorBody(1, "x", {"a": 1})),
]


@both
@pytest.mark.parametrize(("kind", "value"), VALUES, ids=repr)
def test_value_travels(codec: Codec, kind: Any, value: Any) -> None:
    """What is written is read again, equal and of the same type."""
    encode, decode = codec.bind(kind)
    data = encode(value)
    assert type(data) is bytes
    again = decode(data)
    assert again == value
    assert type(again) is type(value)


@both
@given(st.text() | st.lists(st.floats(allow_nan=False, allow_infinity=False)) | st.integers(-(2**63), 2**64 - 1))
def test_any_text_number_and_list_travels(codec: Codec, value: Any) -> None:
    """Texts, lists of floats and integers of 64 bits come back equal, by their own type as well as by none."""
    kind = {str: str, list: list[float], int: int}[type(value)]
    data = codec.bind(kind)[0](value)
    assert codec.bind(kind)[1](data) == value
    assert decode_any(codec, data) == value


@both
@pytest.mark.parametrize(
    ("kind", "wrong"), [(int, "1"), (int, 1.5), (str, 1), (list[float], ["x"]), (Point, {"x": 1})], ids=repr
)
def test_decoder_validates(codec: Codec, kind: Any, wrong: Any) -> None:
    """A value of another type is refused where it comes in."""
    with pytest.raises(msgspec.ValidationError):
        codec.bind(kind)[1](codec.bind(Any)[0](wrong))


@both
@given(st.binary(max_size=60))
def test_bad_bytes_leave_as_decode_errors(codec: Codec, data: bytes) -> None:
    """Whatever bytes come, a decoder gives a value or one of the known errors."""
    for kind in (Any, list[float], Point, dict[str, int]):
        with suppress(*DECODE_ERRORS):
            codec.bind(kind)[1](data)


@pytest.mark.parametrize("kind", [float, list[float], Any], ids=repr)
def test_json_never_writes_nan(kind: Any) -> None:
    """What JSON has no word for becomes null."""
    for value in (math.nan, math.inf, -math.inf):
        data = get_codec("json").bind(kind)[0]([value] if kind == list[float] else value)
        assert data in (b"null", b"[null]")


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b'"\\ud800"', b'"\xff"', b"1e999", b"01", b"{'a':1}", b""])
def test_json_refuses_what_is_no_json(text: bytes) -> None:
    """Numbers that are none, halves of characters and sloppy texts are refused."""
    with pytest.raises(DECODE_ERRORS):
        get_codec("json").bind(Any)[1](text)


def test_json_integers_are_exact() -> None:
    """An integer of any size keeps its digits, also as a result declared as an integer list."""
    assert get_codec("json").bind(int)[1](b"18446744073709551617") == 2**64 + 1
    assert get_codec("json").bind(list[int])[0]([2**64 + 1]) == b"[18446744073709551617]"


# ---- nesting


def nested(depth: int, make: Callable[[Any], Any] = lambda inner: [inner]) -> Any:
    """A value that nests so deep."""
    value = make(1)
    for _ in range(depth - 1):
        value = make(value)
    return value


NESTS: dict[str, Callable[[Any], Any]] = {
    "list": lambda inner: [inner],
    "dict": lambda inner: {"a": inner},
    "tuple": lambda inner: (inner,),
    "dict in a list": lambda inner: [{"a": inner}],
}


@pytest.mark.parametrize("make", NESTS.values(), ids=NESTS)
def test_nesting_is_counted(make: Callable[[Any], Any]) -> None:
    """Lists, dicts and tuples count, as deep as they go, and the count stops soon after the limit."""
    step = nesting_of(make(1))
    for depth in (1, 2, 50):
        assert nesting_of(nested(depth, make)) == step * depth
    assert nesting_of(nested(10_000, make)) == MAX_NESTING + 1


def test_nesting_of_other_values() -> None:
    """A scalar does not nest; Structs do."""
    assert [nesting_of(value) for value in (1, "x", None, [], {})] == [0, 0, 0, 1, 1]
    assert nesting_of(Tree()) == 1
    assert nesting_of(Circle(1.0)) == 1


@both
def test_deep_values_are_refused_when_a_peer_sends_them(codec: Codec) -> None:
    """A bounded decoder takes the deepest nesting that is allowed and refuses one more."""
    encode, decode = codec.bind(Any)
    safe = bounded(decode, Any)
    assert safe(encode(nested(MAX_NESTING))) == nested(MAX_NESTING)
    with pytest.raises(msgspec.DecodeError, match=f"nested deeper than {MAX_NESTING} levels"):
        safe(encode(nested(MAX_NESTING + 1)))


def test_types_that_cannot_nest_pay_nothing() -> None:
    """The decoder of a type of known shape is used as it is."""
    decode = get_codec("msgpack").bind(list[int])[1]
    assert bounded(decode, list[int]) is decode


def test_nesting_of_structs_is_counted() -> None:
    """A Struct inside of a Struct is one level more."""
    assert nesting_of(Tree(Tree(Tree()))) == 3
    assert nesting_of([Tree(), {"a": Tree(Tree())}]) == 4


# ---- raw


def test_raw_carries_bytes_as_they_are() -> None:
    """One parameter of bytes by position, and a result of bytes; errors as MessagePack."""

    def function(data: bytes) -> bytes: ...

    raw, spec = get_codec("raw"), describe(function)
    encode, decode = raw.bind(spec.params)
    assert (encode((b"x",)), decode(b"x")) == (b"x", (b"x",))
    encode, decode = raw.bind(bytes)
    assert (encode(b"x"), decode(b"x")) == (b"x", b"x")
    encode, decode = raw.bind(ErrorBody)
    assert decode(encode(ErrorBody(1, "x"))) == ErrorBody(1, "x")
    assert msgspec.msgpack.decode(encode(ErrorBody(1, "x"))) == {"code": 1, "message": "x"}


@pytest.mark.parametrize("kind", [int, str, tuple[int], tuple[bytes, bytes], list[bytes]], ids=repr)
def test_raw_refuses_other_types(kind: Any) -> None:
    """A type that is not bytes cannot be bound."""
    with pytest.raises(TypeError, match="the raw codec carries one bytes parameter and a bytes result, nothing else"):
        get_codec("raw").bind(kind)


@pytest.mark.parametrize("params", [(), (b"a", b"b"), (1,), {"data": b"x"}, ("x",)], ids=repr)
def test_raw_refuses_other_calls(params: Any) -> None:
    """A call with anything but one bytes value by position is refused before it is sent."""
    with pytest.raises(TypeError, match="exactly one bytes parameter, by position"):
        get_codec("raw").bind(tuple[bytes])[0](params)


# ---- the registry


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the registry, which is forgotten after the test."""
    monkeypatch.setattr(codecs, "_codecs", codecs._codecs.copy())


@pytest.mark.usefixtures("registry")
def test_codec_is_found_by_its_name() -> None:
    """A registered codec is found; an unknown name is told those that there are."""
    codec = JsonCodec()
    register_codec("mine", codec)
    assert get_codec("mine") is codec
    with pytest.raises(LookupError, match="no codec is named 'none'; there are: json, mine, msgpack, raw"):
        get_codec("none")


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("name", "codec", "error", "text"),
    [
        ("json", JsonCodec(), ValueError, "a codec named 'json' is registered already"),
        ("", JsonCodec(), ValueError, "1 to 32 ASCII characters"),
        ("x" * 33, JsonCodec(), ValueError, "1 to 32 ASCII characters"),
        ("grün", JsonCodec(), ValueError, "1 to 32 ASCII characters"),
        ("mine", object(), TypeError, r"has no bind\(type\) method"),
    ],
)
def test_codec_that_cannot_be_registered(name: str, codec: Any, error: type[Exception], text: str) -> None:
    """A taken or impossible name, and an object that is no codec, are refused."""
    with pytest.raises(error, match=text):
        register_codec(name, codec)
    assert name not in codecs._codecs or codecs._codecs[name] is not codec


def test_codecs_that_every_server_has() -> None:
    """The page of the protocol names three codecs."""
    assert sorted(codecs._codecs) == ["json", "msgpack", "raw"]
