"""Every sentence of msgspec becomes an entry in our words."""

import datetime as dt
import json
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import msgspec
import pytest
from msgspec import Meta

from rpcfast.validation import wording


class Point(msgspec.Struct, array_like=True):
    """A Struct written as an array."""

    x: int
    y: int


class Pair(NamedTuple):
    """A NamedTuple with a default."""

    a: int
    b: int = 0


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    """A Struct that refuses unknown fields."""

    name: str
    deep: dict[str, list["Closed"]] = {}


class Request(msgspec.Struct):
    """An envelope around parameters."""

    params: tuple[int, int]


class Parameter(msgspec.Struct):
    """A parameter, as far as `from_message` looks."""

    name: str


def refused(kind: Any, value: object) -> Exception:
    """Give msgspec's refusal of a value."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, kind)
    return caught.value


@pytest.mark.parametrize(
    ("kind", "value", "path", "name", "message"),
    [
        (int, "x", "$", "int_type", "Expected an integer, got text"),
        (list[int], [[]], "$[0]", "int_type", "Expected an integer, got a list"),
        (int | str | None, 1.5, "$", "union_error", "Expected an integer, text or null, got a decimal number"),
        (int | None, "x", "$", "int_type", "Expected an integer or null, got text"),
        (None, 1, "$", "none_required", "Expected null, got an integer"),
        (complex, 1, "$", "value_error", "Not a valid value here: got an integer"),
        (dict[int, int], {"x": 1}, "$[key]", "int_type", "Expected an integer, got text"),
        (dict[str, list[int]], {"x": ["y"]}, "$[...][0]", "int_type", "Expected an integer, got text"),
        (Closed, {"name": "n", "deep": {"k": [{}]}}, "$.deep[...][0].name", "missing", "Missing"),
        (Closed, {"name": "n", "a b": 1}, '$["a b"]', "extra_forbidden", "Not expected here"),
        (
            Annotated[float, Meta(ge=1)],
            0.5,
            "$",
            "greater_than_equal",
            "Expected a number greater than or equal to 1.0",
        ),
        (Annotated[str, Meta(min_length=1)], "", "$", "string_too_short", "Expected at least 1 character"),
        (Annotated[bytes, Meta(max_length=1)], b"ab", "$", "bytes_too_long", "Expected at most 1 byte"),
        (Annotated[dict[str, int], Meta(min_length=2)], {}, "$", "too_short", "Expected at least 2 entries"),
        (tuple[int, int], [1, 2, 3], "$", "too_long", "Expected exactly 2 items"),
        (Pair, [], "$", "too_short", "Expected at least 1 item"),
        (Pair, [1, 2, 3], "$", "too_long", "Expected at most 2 items"),
        (Point, [], "$", "too_short", "Expected at least 2 items"),
        (Annotated[dt.time, Meta(tz=False)], "12:00:00Z", "$", "timezone_naive", "Expected no time zone"),
        (float, 10**400, "$", "finite_number", "The number is out of range"),
    ],
)
def test_sentences(kind: Any, value: object, path: str, name: str, message: str) -> None:
    """Place, type and words of what msgspec says."""
    entry = wording.from_message(refused(kind, value))
    assert (entry["path"], entry["type"], entry["message"]) == (path, name, message)


def test_positions_become_names() -> None:
    """A position is told by the parameter's name, also below the root that a protocol puts before the parameters."""
    error = refused(tuple[int, list[int]], [1, [2, "x"]])
    assert wording.from_message(error, [Parameter("a"), Parameter("b")])["loc"] == ["b", 1]
    assert wording.from_message(error, [Parameter("a")])["loc"] == [1, 1]
    whole = refused(Request, {"params": [1, "x"]})
    assert wording.from_message(whole, [Parameter("a"), Parameter("b")], root="$.params")["path"] == "$.b"


@pytest.mark.parametrize(
    "error",
    [
        msgspec.ValidationError("something new - at `$.a`"),
        msgspec.ValidationError(""),
        ValueError("secret"),
        RecursionError(),
        msgspec.ValidationError("Invalid value 'secret` - at `$.x' - at `$.a`"),
    ],
)
def test_any_exception_becomes_an_entry(error: Exception) -> None:
    """What is not known is told without quoting it."""
    entry = wording.from_message(error)
    assert set(entry) == {"loc", "path", "type", "message"}
    assert "secret" not in json.dumps(entry)


@pytest.mark.parametrize("make", [lambda n: "k" * n, lambda n: "é" * n], ids=["ascii", "accented"])
def test_long_keys_are_cut(make: Callable[[int], str]) -> None:
    """A key from the peer is repeated only so far as it serves to find the place."""
    entry = wording.entry([make(1_000_000), 10**100, b"\xff"], "missing", "Missing")
    assert len(entry["loc"][0]) == wording.LABEL_LIMIT + 1
    assert entry["loc"][1:] == ["[key]", "[key]"]
    assert len(entry["path"]) < 300


def test_choices_are_shown_as_json_and_cut() -> None:
    """Allowed values are written as a caller writes them; of many, the first twenty."""
    assert wording.choice(["a", 1, None, True]) == 'Expected one of "a", 1, null, true'
    assert wording.choice(["a"]) == 'Expected "a"'
    assert wording.choice(range(50)).endswith("19 … (50 in all)")
