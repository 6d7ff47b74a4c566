"""What the tests over every core share: how each is made, what it may be sent, and events in a form that compares.

No tests here. Found by path, since tests are not a package.
"""
# ruff: noqa: D103 - a procedure that is only described says all in its signature

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from struct import pack
from typing import Any

import msgspec
from hypothesis import strategies as st

from rpcfast.errors import RPCError
from rpcfast.schema import describe
from rpcfast.wire.events import Kind
from rpcfast.wire.jsonrpc import Contract, JsonRpcCore
from rpcfast.wire.native import OPENING, Hello, NativeCore, pack_call, pack_frame

SMALL = 2_000
"""The size limit of these cores: small, so that random bytes reach it."""


def add(a: int, b: int) -> int: ...
def ping() -> int: ...
def keep(value: Any = None, *, by: dict[int, Decimal] | None = None) -> Any: ...


CONTRACT = Contract([describe(function) for function in (add, ping, keep)])


@dataclass(frozen=True)
class Speaker:
    """A core as the shared tests see it."""

    name: str
    make: Callable[[], Any]
    start: bytes
    good: tuple[bytes, ...]
    """Messages that a peer may send in any order."""
    bad: tuple[bytes, ...]

    def __repr__(self) -> str:
        return self.name


def request(**members: Any) -> bytes:
    """One JSON-RPC message."""
    return msgspec.json.encode({"jsonrpc": "2.0", **members})


CALL = request(method="add", params=[1, 2], id=1)
JSONRPC = Speaker(
    "jsonrpc",
    lambda: JsonRpcCore(CONTRACT, max_size=SMALL, max_batch=4),
    b"",
    (
        CALL,
        CALL + b"\n",
        CALL + b"\r\n",
        request(method="add", params={"a": 1, "b": 2}, id="x") + b"\n",
        request(method="ping", id=None),
        request(method="ping") + b"\n",
        request(method="keep", params=['] } \\" { [', {"id": 1, "method": "ü\u2028"}], id=1.5),
        request(method="keep", params={"by": {"1": 2}}, id=3),
        msgspec.json.format(CALL, indent=2),
        b" [" + CALL + b", " + request(method="ping") + b"]\n",
        b'{"jsonrpc":"2.0","method":"keep","params":["\\u0041\\n"],"id":4}',
        b"\r\n\t ",
    ),
    (
        CALL[:-1] + b',"id":2}\n',
        CALL[:-1] + b',"\\u0069d":2}\n',
        b"[]",
        b"[1, 2, {}]\n",
        b"[" + b",".join([CALL] * 5) + b"]\n",
        request(method="add", params=[1, "2"], id=5) + b"\n",
        request(method="none", params=[], id=6),
        request(method="none"),
        request(method=1, id=7) + b"\n",
        b'{"jsonrpc": NaN}\n',
        b'{"jsonrpc": "2.0",\n "method" "add"}\n',
        b"nonsense\n",
        b"{]\n",
        b'{"a": "cut\n',
        b'{"a": "\xff\xfe"}',
        b'{"jsonrpc":"2.0","method":"ping","id":8,"note":"\xff"}\n',
        b"\xef\xbb\xbf{}\n",
        b"[" * 200,
        b'["' + b"x" * SMALL + b'"]\n',
    ),
)

NATIVE = Speaker(
    "native",
    lambda: NativeCore(hello=Hello(max_size=SMALL)),
    OPENING,
    (
        *(pack_call(call_id, b"add", b"\x92\x01\x02") for call_id in range(1, 12)),
        pack_call(12, b"keep", b"\x90"),
        pack_call(13, "ü".encode(), b"", timeout=1.5),
        pack_call(14, b"add", b"\x92\x01\x02", timeout=0.0, metadata={"a": "b", "c": ""}),
        pack_call(0, b"log", b"\x90", kind=Kind.NOTIFICATION),
        *(pack_frame(Kind.RESULT, call_id, b"\x05") for call_id in range(6)),
        pack_frame(Kind.RESULT, 9),
        pack_frame(Kind.ERROR, 7, b"\x82\xa4code\x01\xa7message\xa1x"),
        pack_frame(Kind.CANCEL, 3),
        pack_frame(Kind.PING, 4, b"!"),
        pack_frame(Kind.PONG, 4, b"!"),
        pack_frame(Kind.GOING_AWAY, 9),
        pack_frame(Kind.GOING_AWAY, 9, b"\x82\xa4code\x01\xa7message\xa1x"),
        *[pack(">IQBBH", 0, 0, 99, 0x80, 7)] * 6,
    ),
    (
        pack_call(1, b"add", b"\x92\x01\x02"),
        pack_frame(Kind.HELLO, 0, b"\x80"),
        pack_frame(0),
        pack_frame(99),
        pack_frame(Kind.GOING_AWAY, 9, b"\xc1"),
        pack(">IQBBH", 0, 1, 1, 0, 1),
        pack(">IQBBH", SMALL + 1, 1, 3, 0, 0),
        pack(">IQBBH", 3, 20, 1, 1, 1) + b"abc",
        pack(">IQBBH", 3, 20, 1, 2, 1) + b"\xff\xffc",
        pack(">IQBBH", 1, 20, 1, 4, 1) + b"a",
        pack(">IQBBH", 1, 20, 2, 0, 1) + b"a",
        pack(">IQBBH", 0, 20, 7, 1, 0),
    ),
)

SPEAKERS = (NATIVE, JSONRPC)


def comparable(value: Any) -> Any:
    """An event, or a part of one, in which errors are equal when they say the same."""
    if isinstance(value, RPCError):
        return type(value), value.code, value.message, value.data
    if isinstance(value, tuple | list):
        return [comparable(item) for item in value]
    return value


def feed(core: Any, pieces: Iterable[bytes], *, eof: bool = True) -> tuple[list[Any], bytes]:
    """Give a core bytes as they come; gives its events, in a form that compares, and what it answers by itself."""
    events: list[Any] = []
    for piece in pieces:
        core.receive_data(piece)
        events += core.next_events()
    if eof:
        core.receive_eof()
        events += core.next_events()
    answers = b"".join(core.data_to_send())
    check_end(core, events)
    return comparable(events), answers


def check_end(core: Any, events: list[Any]) -> None:
    """Nothing follows CLOSED, and a core that is closed stays so and keeps nothing."""
    closed = [event for event in events if event[0] == Kind.CLOSED]
    assert len(closed) <= 1
    if closed:
        assert events[-1] is closed[0]
        core.data_to_send()
        core.receive_data(b"\x00" * 100)
        core.receive_data(CALL + b"\n")
        core.receive_eof()
        assert not core.next_events()
        assert not core.data_to_send()
        assert core.waiting <= 1


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """`data` cut at some places."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)]


def streams(speaker: Speaker) -> st.SearchStrategy[bytes]:
    """What a peer may send: mostly good messages, some bad ones."""
    pieces = st.one_of(*[st.sampled_from(speaker.good)] * 3, st.sampled_from(speaker.bad))
    return st.lists(pieces, max_size=20).map(lambda parts: speaker.start + b"".join(parts))


@st.composite
def mutated(draw: Any, speaker: Speaker) -> bytes:
    """A stream that was damaged in a few places."""
    data = bytearray(draw(streams(speaker)))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(data)))
        damage = draw(st.sampled_from(("flip", "insert", "drop", "repeat", "end")))
        if damage == "flip" and place < len(data):
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif damage == "insert":
            data[place:place] = draw(
                st.binary(max_size=8) | st.sampled_from((b"{", b"}", b'"', b"\\", b"\n", b"\xff" * 4))
            )
        elif damage == "drop":
            del data[place : place + draw(st.integers(1, 20))]
        elif damage == "repeat":
            data[place:place] = data[place : place + 40]
        else:
            del data[place:]
    return bytes(data)


def documented(speaker: Speaker, data: bytes) -> list[Any]:
    """Feed anything; gives the events, after a look at whether they are ones that the protocol knows."""
    core = speaker.make()
    core.receive_data(data)
    waiting = core.waiting
    assert waiting <= len(data)
    core.receive_eof()
    events = core.next_events()
    check_end(core, events)
    keys = {*CONTRACT.keys.values()} if speaker is JSONRPC else set()
    for key, _, payload in events:
        assert type(key) is bytes or key in keys or key in KINDS[speaker.name], key
        if key in (Kind.FAILED, Kind.CLOSED):
            assert isinstance(payload, RPCError)
    return events


KINDS = {
    "native": {*range(1, 13), Kind.CLOSED},
    "jsonrpc": {Kind.NOTIFICATION, Kind.INVALID, Kind.FAILED, Kind.BATCH, Kind.IGNORED, Kind.CLOSED},
}
