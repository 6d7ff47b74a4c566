"""What is wrong with a value, as entries of `InvalidParams.data["errors"]` in words that a beginner understands.

Duty: turn msgspec's one-line refusals, pydantic's lists and our own findings into entries of one shape, whose `type`
names are pydantic's where pydantic has one. Prohibitions: imports nothing of ours; never repeats a refused value (it
may be secret or huge), only its kind; never shows the path of a Python class. All of it runs on the error path only.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

LABEL_LIMIT: Final = 100
"""Characters of a key that an error repeats to say where it is: keys come from the peer."""
TEXT_LIMIT: Final = 500
"""Characters of an exception's own text that reach the caller."""
_CHOICE_LIMIT: Final = 20
_INTEGER_BITS: Final = 53  # what every JSON reader keeps exact
_PYDANTIC_LIMIT: Final = 1_000  # pydantic lists all errors or none; listing hundreds of thousands takes seconds

Loc = Sequence[str | int]
Finding = tuple[Loc, str, str]
"""Where (below the checked value), type, message."""


class Named(Protocol):
    """Anything with a name: all that `from_message` needs of a parameter."""

    @property
    def name(self) -> str:
        """What callers write."""
        ...


# msgspec's name of a kind: (error type, as expected, as received)
_KINDS: Final = {
    "int": ("int_type", "an integer", "an integer"),
    "float": ("float_type", "a number", "a decimal number"),
    "str": ("string_type", "text", "text"),
    "bool": ("bool_type", "true or false", "a boolean"),
    "null": ("none_required", "null", "null"),
    "bytes": ("bytes_type", "bytes", "bytes"),
    "array": ("list_type", "a list", "a list"),
    "object": ("dict_type", "an object", "an object"),
    "datetime": ("datetime_type", "a date and time", "a date and time"),
    "date": ("date_type", "a date", "a date"),
    "time": ("time_type", "a time", "a time"),
    "duration": ("time_delta_type", "a duration", "a duration"),
    "uuid": ("uuid_type", "a UUID", "a UUID"),
    "decimal": ("decimal_type", "a decimal number", "a decimal number"),
    "ext": ("ext_type", "an extension value", "an extension value"),
    "raw": ("raw_type", "an undecoded value", "an undecoded value"),
}
_OTHER: Final = ("value_error", "another kind of value", "another kind of value")

_FIXED: Final = {
    "Invalid RFC3339 encoded datetime": ("datetime_parsing", "Expected a date and time such as 2030-01-31T12:00:00Z"),
    "Invalid RFC3339 encoded date": ("date_parsing", "Expected a date such as 2030-01-31"),
    "Invalid RFC3339 encoded time": ("time_parsing", "Expected a time such as 12:00:00"),
    "Invalid ISO8601 duration": ("time_delta_parsing", "Expected a duration such as P1DT2H30M"),
    "Duration is out of range": ("time_delta_parsing", "The duration is too long"),
    "Invalid MessagePack timestamp": ("datetime_parsing", "Not a valid timestamp"),
    "Invalid epoch timestamp": ("datetime_parsing", "Not a valid timestamp"),
    "Timestamp is out of range": ("datetime_parsing", "The timestamp is out of range"),
    "Invalid UUID": ("uuid_parsing", "Expected a UUID such as 12345678-1234-5678-1234-567812345678"),
    "Invalid decimal string": ("decimal_parsing", "Expected a decimal number such as 1.50"),
    "Invalid base64 encoded string": ("bytes_invalid_encoding", "Expected bytes as base64 text"),
    "Invalid enum value": ("enum", "Not one of the allowed values"),
    "Invalid value": ("union_tag_invalid", "Not one of the known kinds"),
    "Integer value out of range": ("int_parsing_size", "The integer is out of range"),
    "Number out of range": ("finite_number", "The number is out of range"),
    "Expected `str`": ("string_type", "Expected text"),
    "Expected `int`": ("int_type", "Expected an integer"),
}

_BOUNDS: Final = {
    ">=": ("greater_than_equal", "greater than or equal to"),
    ">": ("greater_than", "greater than"),
    "<=": ("less_than_equal", "less than or equal to"),
    "<": ("less_than", "less than"),
}
_SIZES: Final = {  # msgspec's name of a kind: (prefix of the error type, what is counted)
    "str": ("string_", "character"),
    "bytes": ("bytes_", "byte"),
    "array": ("", "item"),
    "object": ("", "entry"),
}
_PYTHON_KINDS: Final[dict[type, str]] = {
    bool: "bool", int: "int", float: "float", str: "str", bytes: "bytes", type(None): "null", dict: "object",
    list: "array", tuple: "array",
}  # fmt: skip


def entry(loc: Loc, kind: str, message: str) -> dict[str, Any]:
    """Make one element of `InvalidParams.data["errors"]`; the same place as a list and as a path from `$`."""
    labels = [_label(part) for part in loc]
    return {"loc": labels, "path": "$" + "".join(map(_step, labels)), "type": kind, "message": message}


def bound(relation: str, limit: object) -> tuple[str, str]:
    """Word a number on the wrong side of `limit`, where `relation` is one of `>=`, `>`, `<=`, `<`."""
    kind, words = _BOUNDS[relation]
    return kind, f"Expected a number {words} {limit}"


def size(name: str, low: int | None, high: int | None, got: int | None = None) -> tuple[str, str]:
    """Word a wrong length of a `str`, `bytes`, `array` or `object`; `got` decides which of two limits was broken."""
    prefix, unit = _SIZES.get(name, ("", "item"))
    short = low is not None and (high is None or (got is not None and got < low))
    words, limit = ("at least", low) if short else ("at most", high)
    words = "exactly" if low == high else words
    units = unit if limit == 1 else unit.removesuffix("y") + "ies" if unit.endswith("y") else unit + "s"
    return f"{prefix}too_{'short' if short else 'long'}", f"Expected {words} {limit} {units}"


def choice(values: Sequence[object]) -> str:
    """Word the values that are allowed, as JSON, the first twenty of them."""
    shown = ", ".join(json.dumps(value) for value in values[:_CHOICE_LIMIT])
    more = f" … ({len(values)} in all)" if len(values) > _CHOICE_LIMIT else ""
    return f"Expected {'one of ' if len(values) > 1 else ''}{shown}{more}"


def received(value: object) -> str:
    """Name the kind of a decoded value."""
    return _KINDS.get(_PYTHON_KINDS.get(type(value), ""), _OTHER)[2]


def findings(error: BaseException) -> Iterator[Finding]:
    """Take apart what msgspec raised: one finding, or every error of a pydantic model.

    The text of a `ValueError` or `TypeError` that a type's own code raised (a decoding hook, `__post_init__`) is passed
    on, as its author wrote it for callers; other exceptions stay unquoted.
    """
    if isinstance(error, RecursionError):
        yield (), "too_deep", "Nested too deeply"
        return
    text, loc = _split(str(error))
    cause = error.__cause__
    if cause is not None:
        yield from _caused(loc, cause)
        return
    place, kind, message = _worded(text)
    yield (*loc, *place), kind, message


def from_message(error: Exception, parameters: Sequence[Named] = (), *, root: str = "$") -> dict[str, Any]:
    """Turn an exception of msgspec into one entry.

    `parameters` turn a position into the parameter's name. `root` is the path under which the parameters lie in what
    was decoded, such as `$.params` for a whole JSON-RPC request. Never raises; takes any exception.
    """
    loc, kind, message = next(findings(error))
    prefix = [part for part in root.split(".") if part != "$"]
    loc = list(loc)[len(prefix) :] if list(loc[: len(prefix)]) == prefix else list(loc)
    if loc and isinstance(loc[0], int) and loc[0] < len(parameters):
        loc[0] = parameters[loc[0]].name
    return entry(loc, kind, message)


def _label(part: object) -> str | int:
    """Show a key, whatever the peer sent as one: text cut short, small integers as they are."""
    if isinstance(part, str):
        return part if len(part) <= LABEL_LIMIT else part[:LABEL_LIMIT] + "…"
    return part if type(part) is int and part.bit_length() <= _INTEGER_BITS else "[key]"


def _step(label: str | int) -> str:
    if isinstance(label, int):
        return f"[{label}]"
    if label in {"[key]", "[...]"}:
        return label
    return f".{label}" if label.isidentifier() else f"[{json.dumps(label, ensure_ascii=False)}]"


_PLACE: Final = re.compile(r"(`key` in )?`\$(.*)`", re.DOTALL)
_PLACE_PART: Final = re.compile(r"\[(\d+)\]|(\[\.\.\.\])|\.([^.\[]+)")


def _split(text: str) -> tuple[str, list[str | int]]:
    """Cut msgspec's message into what it says and where; a bad key lies at `[key]` below its object."""
    head, _, tail = text.rpartition(" - at ")
    place = _PLACE.fullmatch(tail)
    if place is None:
        return text[:TEXT_LIMIT], []
    parts = _PLACE_PART.findall(place[2])
    loc = [int(index) if index else rest or name for index, rest, name in parts]
    return head[:TEXT_LIMIT], [*loc, "[key]"] if place[1] else loc


def _caused(loc: Loc, cause: BaseException) -> Iterator[Finding]:
    if type(cause).__module__.startswith("pydantic") and hasattr(cause, "error_count"):
        model_error: Any = cause
        if model_error.error_count() > _PYDANTIC_LIMIT:
            yield loc, "too_many_errors", "Too many errors to list"
            return
        for error in model_error.errors(include_url=False, include_input=False, include_context=False):
            yield (*loc, *error["loc"]), error["type"], error["msg"][:TEXT_LIMIT]
        return
    quotable = isinstance(cause, (ValueError, TypeError)) and str(cause)
    yield loc, "value_error", str(cause)[:TEXT_LIMIT] if quotable else "Not a valid value"


def _mismatch(match: re.Match[str]) -> Finding:
    names = match[1].split(" | ")
    wanted = [name for name in names if name != "null"] or names
    kinds = [_KINDS.get(name, _OTHER) for name in wanted] + [_KINDS["null"]] * (len(wanted) < len(names))
    got = _KINDS.get(match[2], _OTHER)[2]
    if _OTHER in kinds:  # a class of the user's: its name is no business of the caller
        return (), _OTHER[0], f"Not a valid value here: got {got}"
    phrases = [phrase for _, phrase, _ in kinds]
    listed = " or ".join(filter(None, (", ".join(phrases[:-1]), phrases[-1])))
    return (), kinds[0][0] if len(wanted) == 1 else "union_error", f"Expected {listed}, got {got}"


def _length(match: re.Match[str]) -> Finding:
    limit = int(match[3])
    return (), *(size(match[1], limit, None) if match[2] == ">=" else size(match[1], None, limit))


def _array_length(match: re.Match[str]) -> Finding:
    first, got = int(match[2]), int(match[4] or 0)
    low = None if match[1] == "at most " else first
    high = None if match[1] == "at least " else int(match[3] or first)
    return (), *size("array", low, high, got)


_PATTERNS: Final[Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], Finding]]]] = [
    (re.compile(r"Expected `([^`]+)`, got `([^`]+)`"), _mismatch),
    (re.compile(r"Expected `(?:int|float)` (>=|<=|>|<) (\S+)"), lambda m: ((), *bound(m[1], m[2]))),
    (
        re.compile(r"Expected `(?:int|float)` that's a multiple of (\S+)"),
        lambda m: ((), "multiple_of", f"Expected a multiple of {m[1]}"),
    ),
    (
        re.compile(r"Expected `str` matching regex (.+)", re.DOTALL),
        lambda m: ((), "string_pattern_mismatch", f"Expected text matching the pattern {m[1]}"),
    ),
    (re.compile(r"Expected `(\w+)` of length (>=|<=) (\d+)"), _length),
    (re.compile(r"Expected `array` of (at least |at most )?length (\d+)(?: to (\d+))?(?:, got (\d+))?"), _array_length),
    (
        re.compile(r"Expected `\w+` with a timezone component"),
        lambda _: ((), "timezone_aware", "Expected a time zone, such as a final Z"),
    ),
    (
        re.compile(r"Expected `\w+` with no timezone component"),
        lambda _: ((), "timezone_naive", "Expected no time zone"),
    ),
    (re.compile(r"Object missing required field `(.+)`", re.DOTALL), lambda m: ((m[1],), "missing", "Missing")),
    (
        re.compile(r"Object contains unknown field `(.*)`", re.DOTALL),
        lambda m: ((m[1],), "extra_forbidden", "Not expected here"),
    ),
]


def _worded(text: str) -> Finding:
    for pattern, word in _PATTERNS:
        if match := pattern.fullmatch(text):
            return word(match)
    for start, (kind, message) in _FIXED.items():
        if text.startswith(start):
            return (), kind, message
    return (), "value_error", "Not a valid value"
