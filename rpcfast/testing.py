"""Tools for tests, of services and of plug-ins; floor 7: imported by nothing here.

`connect` gives a client without a socket, `check_codec` holds a codec to its contract, `split_everywhere` a protocol
core to its own. None of them needs a test framework: what is broken is said by an `AssertionError`.
"""

from __future__ import annotations

import enum
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from rpcfast.client import AsyncClient
from rpcfast.codecs import Codec, Decode, Encode
from rpcfast.errors import DECODE_ERRORS, ErrorBody, RPCError
from rpcfast.server import Server
from rpcfast.wire.events import Event

__all__ = ["check_codec", "connect", "feed", "split_everywhere"]


@asynccontextmanager
async def connect(server: Server, **options: Any) -> AsyncGenerator[AsyncClient, None]:
    """Serve `server` in this process and give an `AsyncClient` of it; `options` are the client's.

    Everything is real but the socket: frames, limits, deadlines, the lifespan. It ends with the block.
    """
    async with AsyncClient(server, **options) as client:
        yield client


# ---- codecs


class Colour(enum.Enum):
    """Travels as its value."""

    RED = "red"


@dataclass
class Point:
    """A dataclass inside of other values."""

    x: int
    y: float = 0.0


class Leaf(msgspec.Struct):
    """A Struct with every kind of default."""

    name: str
    data: bytes | None = None
    tags: list[str] = []  # msgspec copies it for each instance


class Tree(msgspec.Struct):
    """A Struct that holds others, and itself."""

    leaf: Leaf
    points: dict[str, Point] = {}  # as above
    child: Tree | None = None


class Cat(msgspec.Struct, tag="cat"):
    """A member of a tagged union."""

    lives: int


class Dog(msgspec.Struct, tag="dog"):
    """Another member of it."""

    name: str


class ByName(msgspec.Struct, forbid_unknown_fields=True):
    """Parameters by name, as the server makes them of a signature."""

    a: int
    b: str


_TREE: Final = Tree(Leaf("ü", b"\x00\xff", ["a", ""]), {"p": Point(-1, 0.5)}, Tree(Leaf("leaf")))

ROUND_TRIPS: Final[tuple[tuple[Any, Any], ...]] = (  # pyright: ignore[reportUnknownVariableType]  # of values of every type
    *((int, value) for value in (0, 1, -1, 127, 128, -129, 65_536, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1)),
    *((float, value) for value in (0.0, -1.5, 0.1, 1e300, 5e-324)),
    *((str, value) for value in ("", "text", 'ü€😀\u2028\x00"\\/', "x" * 70_000)),
    *((bytes, value) for value in (b"", b"\x00\xff", bytes(range(256)) * 300)),
    (bool, True),
    (bool, False),
    (type(None), None),
    (int | None, None),
    (list[int], []),
    (list[int], list(range(70_000))),
    (list[list[str]], [[], ["a"], ["b", "c"]]),
    (dict[str, int], {}),
    (dict[str, int], {"": 0, "a": 1, "ü" * 100: 2}),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2, 3}),
    (datetime, datetime(2024, 2, 29, 12, 30, 45, 123456, tzinfo=UTC)),
    (date, date(1999, 12, 31)),
    (UUID, UUID("12345678-1234-5678-1234-567812345678")),
    (Decimal, Decimal("3.140")),
    (Colour, Colour.RED),
    (Point, Point(3, 0.25)),
    (Tree, _TREE),
    (list[Tree | None], [_TREE, None]),
    (Cat | Dog, Dog("rex")),
    (Any, {"a": [1, -2.5, "text", True, None, {"b": []}]}),
    (ErrorBody, ErrorBody(-32602, "no", {"errors": [{"loc": ["a", 0]}]})),
    (ErrorBody, ErrorBody(4001, "")),
)
PARAMS: Final = ByName | tuple[int, str]
WRONG: Final[tuple[tuple[Any, Any], ...]] = (
    (int, "text"),
    (int, 1.5),
    (str, 1),
    (bool, 1),
    (list[int], ["1"]),
    (dict[str, int], {"a": None}),
    (tuple[int, str], [1]),
    (Leaf, {"data": None}),
    (Tree, {"leaf": {"name": 1}}),
    (UUID, "no uuid"),
    (Cat | Dog, {"type": "cow"}),
    (PARAMS, [1, "a", 2]),
    (PARAMS, {"a": 1}),
    (PARAMS, {"a": 1, "b": "b", "c": 0}),
)


def check_codec(codec: Codec, name: str = "") -> None:
    """Hold a codec to its contract: what it must carry, what it must refuse, and how.

    Raises `AssertionError` that lists everything broken; `name` stands in its text. Takes about a second.
    """
    checks = (_check_round_trips, _check_params, _check_refusals, _check_garbage)
    problems = [problem for check in checks for problem in check(codec)]
    if problems:
        title = f"the codec {name or type(codec).__name__!r} breaks its contract"
        raise AssertionError("\n- ".join([f"{title} in {len(problems)} places:", *problems]))


def _short(value: Any, longest: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= longest else text[:longest] + "…"


def _bound(codec: Codec, kind: Any) -> tuple[Encode, Decode] | str:
    """The pair for a type, or what is wrong with it."""
    try:
        return codec.bind(kind)
    except Exception as error:  # noqa: BLE001  # whatever it raises is what is reported
        return f"bind({kind}) raises {error!r}"


def _check_round_trips(codec: Codec) -> Iterator[str]:
    for kind, value in ROUND_TRIPS:
        pair = _bound(codec, kind)
        if isinstance(pair, str):
            yield pair
            continue
        try:
            data = pair[0](value)
            back = pair[1](data)
        except Exception as error:  # noqa: BLE001  # as in _bound
            yield f"{_short(value)} as {kind} raises {error!r}"
            continue
        if type(data) is not bytes:
            yield f"encode({_short(value)}) gives {type(data).__name__}, not bytes"
        if back != value or type(back) is not type(value):
            yield f"{_short(value)} as {kind} comes back as {_short(back)}"


def _check_params(codec: Codec) -> Iterator[str]:
    """What a client sends, a tuple or a dict, becomes the tuple or the Struct of a signature."""
    pairs = _bound(codec, tuple[Any, ...] | dict[str, Any]), _bound(codec, PARAMS)
    if isinstance(pairs[0], str) or isinstance(pairs[1], str):
        yield from (pair for pair in pairs if isinstance(pair, str))
        return
    encode, decode = pairs[0][0], pairs[1][1]
    for sent, expected in (((1, "a"), (1, "a")), ({"a": 1, "b": "b"}, ByName(1, "b"))):
        try:
            found = decode(encode(sent))
        except Exception as error:  # noqa: BLE001  # as in _bound
            yield f"the parameters {sent} raise {error!r}"
            continue
        if found != expected:
            yield f"the parameters {sent} are decoded to {found!r}, not to {expected!r}"


def _check_refusals(codec: Codec) -> Iterator[str]:
    """Values of another type, and values of no type at all."""
    any_pair = _bound(codec, Any)
    if isinstance(any_pair, str):
        yield any_pair
        return
    encode = any_pair[0]
    for kind, value in WRONG:
        pair = _bound(codec, kind)
        if isinstance(pair, str):
            continue  # reported where it was to be carried
        try:
            found = pair[1](encode(value))
        except msgspec.ValidationError:
            continue
        except Exception as error:  # noqa: BLE001  # as in _bound
            yield f"{value!r} for {kind} must raise msgspec.ValidationError, not {error!r}"
        else:
            yield f"{value!r} is taken for {kind}, as {found!r}; it must raise msgspec.ValidationError"
    try:
        encode(object())
    except Exception:  # noqa: BLE001  # any refusal will do
        return
    yield "an object that cannot travel is encoded; it must raise TypeError"


def _garbage() -> Iterator[bytes]:
    yield b""
    yield from (bytes([first]) for first in range(256))
    yield from (bytes([first]) + b"\xff" * 8 for first in range(256))  # lengths beyond everything
    yield from (bytes([first]) * 5_000 for first in b"[{\x81\x91\xa1\xbf\xd9")  # deep
    chance = random.Random(0)  # noqa: S311  # the same bytes in each run
    yield from (chance.randbytes(chance.randrange(1, 40)) for _ in range(500))


def _check_garbage(codec: Codec) -> Iterator[str]:
    """Bytes that are no value raise one of `DECODE_ERRORS`, and so does a list or map that is cut short."""
    for kind in (Any, PARAMS, Tree, ErrorBody):
        pair = _bound(codec, kind)
        if isinstance(pair, str):
            continue
        for data in _garbage():
            yield from _decoded(pair[1], kind, data, must_fail=False)
    cut_short: list[Any] = [(Tree, _TREE), (list[int], [1, 300, 70_000]), (dict[str, int], {"a": 1, "b": 2})]
    for kind, value in cut_short:
        pair = _bound(codec, kind)
        if isinstance(pair, str):
            continue
        try:
            data = pair[0](value)
        except Exception:  # noqa: BLE001, S112  # reported where it was to be carried
            continue
        for end in range(len(data)):
            yield from _decoded(pair[1], kind, data[:end], must_fail=True)


def _decoded(decode: Decode, kind: Any, data: bytes, *, must_fail: bool) -> Iterator[str]:
    try:
        value = decode(data)
    except DECODE_ERRORS:
        return
    except Exception as error:  # noqa: BLE001  # as in _bound
        yield f"the bytes {_short(data)} as {kind} raise {error!r}, which is none of rpcfast.errors.DECODE_ERRORS"
    else:
        if must_fail:
            yield f"the bytes {_short(data)}, which are cut short, are taken for {kind}: {_short(value)}"


# ---- protocol cores


class Fed(NamedTuple):
    """What a core made of bytes: its events, and what it answers by itself."""

    events: list[Event]
    answer: bytes


def feed(core: Any, pieces: Iterable[bytes], *, eof: bool = False) -> Fed:
    """Give a core (`rpcfast.wire.events.Core`) bytes as they come, then the end if `eof`; take its events."""
    events: list[Event] = []
    for piece in pieces:
        core.receive_data(piece)
        events += core.next_events()
    if eof:
        core.receive_eof()
        events += core.next_events()
    return Fed(events, b"".join(core.data_to_send()))


def split_everywhere(make: Callable[[], Any], data: bytes, *, rounds: int = 20, seed: int = 0) -> list[Event]:
    """Feed a new core of `make()` with `data` whole, byte by byte, cut once at each place, and in `rounds` random ways.

    Gives the events; raises `AssertionError` that shows the pieces when a cut changes them, or the answer.
    """
    whole = feed(make(), [data], eof=True)
    for pieces in _cuts(data, rounds, random.Random(seed)):  # noqa: S311  # a test that can be repeated
        found = feed(make(), pieces, eof=True)
        if _comparable(found) != _comparable(whole):
            raise AssertionError(f"the cuts {_short(pieces, 400)} change {whole} to {found}")
    return whole.events


def _cuts(data: bytes, rounds: int, chance: random.Random) -> Iterator[list[bytes]]:
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, min(len(data), 200)):
        yield [data[:at], data[at:]]
    for _ in range(rounds):
        edges = sorted({0, len(data), *(chance.randint(0, len(data)) for _ in range(chance.randint(1, 10)))})
        yield [data[start:end] for start, end in pairwise(edges)]


def _comparable(value: Any) -> Any:
    """Events in which errors are equal when they say the same."""
    if isinstance(value, RPCError):
        return type(value), value.code, value.message, value.data
    if isinstance(value, list | tuple):
        return [_comparable(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
