"""Native frames: every refusal with its text, runs of equal frames, and what this side writes."""

import itertools
from collections.abc import Callable, Iterable
from struct import pack
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcfast.errors import ErrorBody, InvalidRequest, NotFound, ParseError, ResourceExhausted, RPCError
from rpcfast.wire import native
from rpcfast.wire.events import Kind
from rpcfast.wire.native import (
    MAX_HELLO,
    MAX_METADATA,
    MAX_METADATA_FIELDS,
    MAX_NAME,
    OPENING,
    Hello,
    NativeCore,
    answer_error_with,
    answer_with,
    inline_with,
    pack_call,
    pack_frame,
)
from tests.wire.cores import comparable, feed

msgpack = msgspec.msgpack.encode
FIRST = OPENING + pack_frame(Kind.HELLO, 0, b"\x80")
PARAMS = b"\x92\x02\x03"


def frame(body: bytes = b"", *, kind: int = 1, call_id: int = 1, flags: int = 0, name_size: int = 0) -> bytes:
    """Any frame at all, sound or not."""
    return pack(">IQBBH", len(body), call_id, kind, flags, name_size) + body


def events_of(data: bytes, **options: Any) -> list[Any]:
    """What a server's core makes of an opening and `data`."""
    core = NativeCore(**options)
    core.receive_data(OPENING + data)
    return core.next_events()


# ---- what is refused


def metadata(fields: bytes, size: int | None = None) -> bytes:
    """The part of a call that carries metadata, then a name."""
    return (len(fields) if size is None else size).to_bytes(2, "big") + fields + b"f"


MANY = msgpack({str(i): "" for i in range(MAX_METADATA_FIELDS + 1)})
REFUSALS: dict[str, tuple[bytes, type[RPCError], str]] = {
    "kind 0": (frame(kind=0), InvalidRequest, "frames of kind 0 are not spoken here"),
    "stream item": (frame(kind=5), InvalidRequest, "frames of kind 5 are not spoken here"),
    "stream end": (frame(kind=6), InvalidRequest, "frames of kind 6 are not spoken here"),
    "credit": (frame(kind=8), InvalidRequest, "frames of kind 8 are not spoken here"),
    "event": (frame(kind=13), InvalidRequest, "frames of kind 13 are not spoken here"),
    "kind 255": (frame(kind=255, flags=0x7F), InvalidRequest, "frames of kind 255 are not spoken here"),
    "id 0": (frame(b"f", call_id=0, name_size=1), InvalidRequest, "call id 0 does not grow: the last one was 0"),
    "same id": (
        pack_call(7, b"f", b"") + pack_call(7, b"f", b""),
        InvalidRequest,
        "call id 7 does not grow: the last one was 7",
    ),
    "smaller id": (
        pack_call(7, b"f", b"") + pack_call(6, b"f", b"", timeout=1),
        InvalidRequest,
        "call id 6 does not grow: the last one was 7",
    ),
    "notification with an id": (frame(b"f", kind=2, name_size=1), InvalidRequest, "a notification's id is 0"),
    "unknown flags": (frame(b"f", flags=0x7C, name_size=1), InvalidRequest, "unknown flags 0x7c in a call"),
    "no room for a timeout": (
        frame(b"1234567", flags=1, name_size=1),
        InvalidRequest,
        "a call is shorter than its timeout",
    ),
    "no room for the length of metadata": (
        frame(b"\x00", flags=2, name_size=1),
        InvalidRequest,
        f"metadata is longer than its call, or than {MAX_METADATA} bytes",
    ),
    "no metadata at all": (
        frame(flags=2, name_size=1),
        InvalidRequest,
        f"metadata is longer than its call, or than {MAX_METADATA} bytes",
    ),
    "metadata longer than the call": (
        frame(metadata(b"\x80", 3), flags=2, name_size=1),
        InvalidRequest,
        f"metadata is longer than its call, or than {MAX_METADATA} bytes",
    ),
    "metadata over its cap": (
        frame(metadata(bytes(MAX_METADATA + 1)), flags=2, name_size=1),
        InvalidRequest,
        f"metadata is longer than its call, or than {MAX_METADATA} bytes",
    ),
    "too many fields": (
        frame(metadata(MANY), flags=2, name_size=1),
        InvalidRequest,
        f"metadata has more than {MAX_METADATA_FIELDS} fields",
    ),
    "metadata of numbers": (
        frame(metadata(b"\x81\xa1a\x01"), flags=2, name_size=1),
        ParseError,
        "a frame of kind 1 cannot be read: Expected `str`, got `int` - at `$[...]`",
    ),
    "metadata that is no text": (
        frame(metadata(b"\x81\xa1a\xa1\xff"), flags=2, name_size=1),
        ParseError,
        "a frame of kind 1 cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    ),
    "no name": (
        frame(b"f"),
        InvalidRequest,
        f"a call's name must be 1 to {MAX_NAME} bytes and within its frame, not 0",
    ),
    "name of 256 bytes": (
        frame(bytes(300), name_size=256),
        InvalidRequest,
        f"a call's name must be 1 to {MAX_NAME} bytes and within its frame, not 256",
    ),
    "name longer than the frame": (
        frame(b"sum", name_size=4),
        InvalidRequest,
        f"a call's name must be 1 to {MAX_NAME} bytes and within its frame, not 4",
    ),
    "name cut by metadata": (
        frame(metadata(b"\x80"), flags=2, name_size=2),
        InvalidRequest,
        f"a call's name must be 1 to {MAX_NAME} bytes and within its frame, not 2",
    ),
    "flags in a result": (frame(kind=3, flags=1), InvalidRequest, "a frame of kind 3 has neither flags nor a name"),
    "name in a cancel": (
        frame(b"f", kind=7, name_size=1),
        InvalidRequest,
        "a frame of kind 7 has neither flags nor a name",
    ),
    "late hello": (
        pack_frame(Kind.PING) + pack_frame(Kind.HELLO, 0, b"\x80"),
        InvalidRequest,
        "a hello is the first frame, or there is none",
    ),
    "second hello": (
        pack_frame(Kind.HELLO, 0, b"\x80") * 2,
        InvalidRequest,
        "a hello is the first frame, or there is none",
    ),
    "long hello": (
        frame(bytes(MAX_HELLO + 1), kind=12, call_id=0),
        InvalidRequest,
        f"a hello is longer than {MAX_HELLO} bytes",
    ),
    "hello that is no map": (
        frame(b"\x90", kind=12),
        ParseError,
        "a frame of kind 12 cannot be read: Expected `object`, got `array`",
    ),
    "hello without a body": (frame(kind=12), ParseError, "a frame of kind 12 cannot be read: Input data was truncated"),
    "hello of a wrong type": (
        frame(b"\x81\xa5codec\x01", kind=12),
        ParseError,
        "a frame of kind 12 cannot be read: Expected `str`, got `int` - at `$.codec`",
    ),
    "going away with rubbish": (
        frame(b"\xc1", kind=11),
        ParseError,
        "a frame of kind 11 cannot be read: MessagePack data is malformed: invalid opcode '\\xc1' (byte 0)",
    ),
    "large frame": (
        frame(kind=3)[:3] + b"\xff" + frame(kind=3)[4:],
        ResourceExhausted,
        "a frame of 255 bytes is beyond the limit of 254; raise max_message_size",
    ),
    "largest frame": (
        b"\xff" * 16,
        ResourceExhausted,
        "a frame of 4294967295 bytes is beyond the limit of 254; raise max_message_size",
    ),
}
SMALL_CORES = {"large frame", "largest frame"}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name: str) -> None:
    """Each violation has its own text, ends the connection, and is told to the peer with the last id that was taken."""
    data, error, text = REFUSALS[name]
    core = NativeCore(hello=Hello(max_size=254) if name in SMALL_CORES else None)
    core.receive_data(OPENING + data + pack_call(2**40, b"never", b""))
    kind, call_id, closed = core.next_events()[-1]
    assert (kind, call_id, type(closed), closed.message) == (Kind.CLOSED, 0, error, text)
    told = NativeCore(client=True)
    told.receive_data(b"".join(core.data_to_send()))
    hello, going_away = told.next_events()
    assert hello[0] == Kind.HELLO
    assert going_away == (Kind.GOING_AWAY, core.last_id, ErrorBody(closed.code, text))
    assert core.last_id < 2**40


@pytest.mark.parametrize(
    "opening",
    [OPENING[:i] + bytes([OPENING[i] ^ 1]) for i in range(len(OPENING))],
    ids=["first byte", "second", "third", "fourth", "version"],
)
def test_wrong_opening_is_refused_at_its_first_wrong_byte(opening: bytes) -> None:
    """A wrong magic or version ends the connection as soon as the wrong byte is there, for both roles, whole or cut."""
    text = "this is not rpcfast's native protocol, version 1: it opens with f5 72 70 63 01"
    for client, pieces in itertools.product((False, True), ([opening], [opening[i : i + 1] for i in range(9)])):
        events, answers = feed(NativeCore(client=client), pieces, eof=False)
        assert events == [[Kind.CLOSED, 0, (ParseError, -32700, text, None)]]
        assert answers.startswith(FIRST)
        assert answers.count(OPENING) == 1


STREAM = FIRST + pack_call(1, b"sum", PARAMS, timeout=1, metadata={"a": "b"}) + pack_frame(Kind.RESULT, 1, b"\x05")
ENDS = {len(OPENING), len(FIRST), len(STREAM) - 17, len(STREAM), 0}


@pytest.mark.parametrize("end", range(len(STREAM) + 1))
def test_truncated_at_every_byte(end: int) -> None:
    """A connection that ends between frames ends well; within one, it is an error that says how far the frame came."""
    events, _ = feed(NativeCore(), [STREAM[:end]])
    if end in ENDS:
        assert all(event[0] != Kind.CLOSED for event in events)
    else:
        begun = end - max(place for place in ENDS if place < end)
        text = f"the connection ended in the middle of a frame, after {begun} bytes of it"
        assert events[-1] == [Kind.CLOSED, 0, (ParseError, -32700, text, None)]


def test_largest_allowed_frame_passes() -> None:
    """A frame of exactly `max_size` is taken, a name of 255 bytes too."""
    (event,) = events_of(frame(bytes(300), name_size=255), hello=Hello(max_size=300))
    assert event == (bytes(255), 1, bytes(45))


# ---- what is taken


def test_ids_of_a_call_only_grow() -> None:
    """Ids may skip, up to the largest number that fits."""
    ids = [1, 2, 1000, 2**64 - 1]
    assert [event[1] for event in events_of(b"".join(pack_call(i, b"f", b"") for i in ids))] == ids


@pytest.mark.parametrize("kind", [0, 5, 6, 8, 13, 14, 99, 255])
@pytest.mark.parametrize("flags", [0x80, 0xFF])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_frames_that_ask_to_be_ignored_are(kind: int, flags: int, count: int) -> None:
    """A frame of an unknown kind with the bit IGNORE is skipped whole, whatever else it says, and counted."""
    core = NativeCore()
    core.receive_data(OPENING + frame(b"xyz", kind=kind, flags=flags, name_size=60_000) * count)
    core.receive_data(frame(kind=kind, flags=flags, name_size=1) * count + pack_call(1, b"f", b""))
    assert core.next_events() == [(b"f", 1, b"")]
    assert core.ignored == 2 * count


def test_a_refused_kind_is_not_counted_as_ignored() -> None:
    """`ignored` counts what was skipped, not what ended the connection."""
    core = NativeCore()
    core.receive_data(OPENING + frame(kind=99))
    assert core.ignored == 0


def test_ignore_bit_changes_nothing_for_known_kinds() -> None:
    """A known frame with the bit IGNORE is taken as without it."""
    known = frame(b"f!", flags=0x80, name_size=1) + frame(b"?", kind=9, flags=0x80) + frame(b"5", kind=3, flags=0x80)
    assert events_of(known) == [
        (Kind.CALL, 1, (b"f", b"!", None, None)),
        (Kind.PING, 1, b"?"),
        (Kind.RESULT, 1, b"5"),
    ]


@pytest.mark.parametrize(("micros", "seconds"), [(0, 0.0), (1, 1e-6), (2**64 - 1, (2**64 - 1) / 1e6)])
def test_timeouts_of_any_size(micros: int, seconds: float) -> None:
    """A timeout is read in microseconds and given in seconds, from none at all to the largest that fits."""
    (event,) = events_of(frame(micros.to_bytes(8, "big") + b"f", flags=1, name_size=1))
    assert event == (Kind.CALL, 1, (b"f", b"", seconds, None))


@pytest.mark.parametrize(
    ("seconds", "micros"),
    [(0, 0), (-1, 0), (1.5, 1_500_000), (1e-7, 0), (1e300, 2**64 - 1), (float("inf"), 2**64 - 1), (-float("inf"), 0)],
)
def test_timeouts_are_clamped_when_sent(seconds: float, micros: int) -> None:
    """A timeout that is past is sent as none, an endless one as the longest."""
    assert pack_call(1, b"f", b"", timeout=seconds)[16:24] == micros.to_bytes(8, "big")


@pytest.mark.parametrize(
    "options",
    [
        {"name": b""},
        {"name": bytes(256)},
        {"timeout": float("nan")},
        {"metadata": {str(i): "" for i in range(101)}},
        {"metadata": {"a": "x" * MAX_METADATA}},
    ],
)
def test_what_no_frame_takes_is_not_sent(options: dict[str, Any]) -> None:
    """A name, metadata or timeout that the peer would refuse raises here."""
    with pytest.raises(ValueError):
        pack_call(1, **{"name": b"f", "body": b"", **options})


def test_largest_metadata_passes() -> None:
    """What may be sent may be received: metadata at its caps, and an empty map."""
    fields = {str(i): "" for i in range(MAX_METADATA_FIELDS - 1)}
    fields["x"] = "x" * (MAX_METADATA - len(msgpack(fields)) - 5)
    ((_, _, payload),) = events_of(pack_call(1, b"f", b"", metadata=fields))
    assert payload == (b"f", b"", None, fields)
    ((_, _, payload),) = events_of(frame(metadata(b"\x80"), flags=2, name_size=1))
    assert payload == (b"f", b"", None, {})


def test_hello_of_a_peer_is_kept() -> None:
    """The peer's settings are an event and stay; members that are not known are skipped; defaults hold for the rest."""
    core = NativeCore()
    core.receive_data(OPENING + pack_frame(Kind.HELLO, 0, msgpack({"codec": "json", "colour": [1]})))
    assert core.next_events() == [(Kind.HELLO, 0, Hello(codec="json"))]
    assert core.peer == Hello("json", 16 * 1024 * 1024)


def test_hello_after_a_frame_in_an_earlier_read_is_late() -> None:
    """A hello is late whether or not the events before it were taken."""
    for before in (pack_call(1, b"f", b""), pack_frame(Kind.RESULT, 1), frame(kind=99, flags=0x80)):
        core = NativeCore()
        core.receive_data(OPENING + before)
        core.next_events()
        core.receive_data(pack_frame(Kind.HELLO, 0, b"\x80"))
        assert core.next_events()[-1][0] == Kind.CLOSED


def test_going_away_with_and_without_a_reason() -> None:
    """GOING_AWAY carries the last id that was taken, and an error or nothing."""
    body = ErrorBody(-32003, "stopping", {"a": 1})
    events = events_of(pack_frame(Kind.GOING_AWAY, 7) + pack_frame(Kind.GOING_AWAY, 8, msgpack(body)))
    assert events == [(Kind.GOING_AWAY, 7, None), (Kind.GOING_AWAY, 8, body)]


# ---- runs of equal frames


def shapes() -> st.SearchStrategy[Callable[[int], bytes]]:
    """Frames that differ in kind and size, each made for an id."""
    call = st.builds(
        lambda name, body: lambda i: pack_call(i, name, body),
        st.sampled_from((b"f", b"sum", b"x" * 255)),
        st.sampled_from((b"", PARAMS, bytes(1_100))),
    )
    timed = st.just(lambda i: pack_call(i, b"sum", PARAMS, timeout=1))
    result = st.builds(
        lambda body: lambda i: pack_frame(Kind.RESULT, i, body), st.sampled_from((b"", b"\x05", b"12345"))
    )
    ping = st.just(lambda i: pack_frame(Kind.PING, i, b"\x05"))
    skipped = st.sampled_from((0, 5, 60_000)).map(lambda size: lambda i: frame(kind=99, flags=0x80, name_size=size))
    return st.one_of(call, call, result, timed, ping, skipped)


@st.composite
def runs(draw: Any) -> list[bytes]:
    """Frames in runs of some shapes, interleaved; now and then an id that does not grow."""
    frames: list[bytes] = []
    call_id = 0
    for make, length in draw(st.lists(st.tuples(shapes(), st.sampled_from((1, 2, 3, 5, 6, 9))), max_size=8)):
        for _ in range(length):
            call_id += draw(st.sampled_from((1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 5, 0)))
            frames.append(make(call_id))
    return frames


@given(runs())
def test_runs_equal_the_general_path(frames: list[bytes]) -> None:
    """Frames that come in one read, taken in runs where they are equal, give the events of one read for each."""
    together, apart = NativeCore(), NativeCore()
    assert feed(together, [OPENING + b"".join(frames)]) == feed(apart, [OPENING, *frames])
    assert (together.last_id, together.ignored) == (apart.last_id, apart.ignored)


@pytest.mark.parametrize("place", range(3, 12))
@pytest.mark.parametrize("wrong", [0, -1])
def test_ids_are_checked_inside_runs(place: int, wrong: int) -> None:
    """An id that repeats or shrinks ends the connection at its place in a run; the calls before it stand."""
    ids = [i if i != place else i - 1 + wrong for i in range(1, 13)]
    events = events_of(b"".join(pack_call(i, b"sum", PARAMS) for i in ids))
    assert [event[1] for event in events[:-1]] == ids[: place - 1]
    assert events[-1][0] == Kind.CLOSED


def test_a_run_is_taken_apart_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long runs do use the fast path: one look for all frames but the first two."""
    found: list[int] = []
    receive_run = NativeCore._receive_run

    def counting(self: NativeCore, data: bytes, stop: int, *shape: int) -> int:
        end = receive_run(self, data, stop, *shape)
        found.append(end - stop)
        return end

    monkeypatch.setattr(NativeCore, "_receive_run", counting)
    call = len(pack_call(1, b"sum", PARAMS))
    assert len(events_of(b"".join(pack_call(i, b"sum", PARAMS) for i in range(1, 17)))) == 16
    assert found == [14 * call]


# ---- what is sent


def send(*events: Any) -> bytes:
    """The bytes of events."""
    core = NativeCore()
    for event in events:
        core.send(event)
    return b"".join(core.data_to_send())


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just(Kind.NOTIFICATION),
                st.just(0),
                st.tuples(
                    st.binary(min_size=1, max_size=255),
                    st.binary(),
                    st.none() | st.integers(0, 10**12).map(lambda micros: micros / 1e6),
                    st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1),
                ),
            ),
            st.tuples(
                st.sampled_from((Kind.RESULT, Kind.ERROR, Kind.CANCEL, Kind.PING, Kind.PONG)),
                st.integers(0, 2**64 - 1),
                st.binary(max_size=50),
            ),
            st.tuples(
                st.just(Kind.GOING_AWAY),
                st.integers(0, 2**64 - 1),
                st.none() | st.builds(ErrorBody, st.integers(-(2**31), 2**31), st.text(), st.integers(1, 5)),
            ),
        )
    )
)
def test_round_trip(events: list[Any]) -> None:
    """What one side sends, the other receives; a timeout may lose a microsecond to rounding."""

    def rounded(event: Any) -> Any:
        kind, call_id, payload = event
        if kind == Kind.NOTIFICATION and payload[2] is not None:
            payload = (*payload[:2], round(payload[2], 4), payload[3])
        return kind, call_id, payload

    received = [rounded(event) for event in events_of(send(*events))]
    assert received == [rounded(event) for event in events]


def test_both_roles_open_with_a_hello() -> None:
    """The client opens at once, the server when it has read an opening; then either may call the other."""
    client, server = NativeCore(client=True, hello=Hello("json")), NativeCore()
    assert server.data_to_send() == []
    client.send((Kind.CALL, 1, (b"f", b"", None, None)))
    server.receive_data(b"".join(client.data_to_send()))
    assert server.next_events() == [(Kind.HELLO, 0, Hello("json")), (b"f", 1, b"")]
    server.send((Kind.CALL, 1, (b"g", b"", None, None)))
    client.receive_data(b"".join(server.data_to_send()))
    assert client.next_events() == [(Kind.HELLO, 0, Hello()), (b"g", 1, b"")]


def test_data_to_send_is_taken_once() -> None:
    """Buffers are given once, in order."""
    core = NativeCore(client=True)
    core.send((Kind.PING, 1, None))
    assert b"".join(core.data_to_send()) == FIRST + pack_frame(Kind.PING, 1)
    assert not core.data_to_send()


# ---- the fast lanes


class Sink:
    """Where the fast lanes put their answers."""

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.sizes: list[int] = []

    def check_size(self, size: int) -> None:
        self.sizes.append(size)


def test_answer_is_a_result_frame() -> None:
    """The fast lane writes what `send` would, and announces only what is large."""
    sink = Sink()
    answer = answer_with(msgpack)
    answer(sink, 7, 5)
    answer(sink, 8, "x" * native.LARGE)
    assert b"".join(sink.out) == send((Kind.RESULT, 7, msgpack(5)), (Kind.RESULT, 8, msgpack("x" * native.LARGE)))
    assert sink.sizes == [native.LARGE + 3]


class Point(msgspec.Struct):
    """Parameters by name."""

    x: int
    y: int


@pytest.mark.parametrize("params", [[2, 3], {"x": 2, "y": 3}])
def test_inline_call(params: Any) -> None:
    """A call by position or by name is read, run and answered in one piece."""
    sink = Sink()
    typed = msgspec.msgpack.Decoder(tuple[int, int] | Point).decode
    handle = inline_with(typed, msgpack, lambda _payload, error: error, lambda x, y: "x" * 100 * x * y)
    handle(9, msgpack(params), sink)
    assert b"".join(sink.out) == send((Kind.RESULT, 9, msgpack("x" * 600)))
    assert sink.sizes == [603]


def test_inline_call_that_does_not_fit_is_explained() -> None:
    """Parameters that cannot be read raise what `explain` makes of them, and nothing is run."""
    sink = Sink()
    typed = msgspec.msgpack.Decoder(tuple[int, int]).decode
    handle = inline_with(typed, msgpack, lambda payload, error: NotFound(f"{payload!r} {error}"), lambda *_: 1 / 0)
    with pytest.raises(NotFound, match="Expected `array` of length 2"):
        handle(9, msgpack([1]), sink)
    assert not sink.out


def answered(error: RPCError, encode: Callable[[Any], bytes] = msgpack, max_size: int = 5_000) -> ErrorBody:
    """The error that arrives."""
    sink = Sink()
    answer_error_with(encode, max_size)(sink, 7, error)
    ((kind, call_id, body),) = events_of(b"".join(sink.out))
    assert (kind, call_id) == (Kind.ERROR, 7)
    return msgspec.msgpack.decode(body, type=ErrorBody)


def test_error_travels_with_its_data() -> None:
    """Code, message and data arrive."""
    assert answered(NotFound("no", data=[1])) == ErrorBody(-32007, "no", [1])


def fails(_: Any) -> bytes:
    """A codec's encoder that raises something odd."""
    raise KeyError


@pytest.mark.parametrize("data", [object(), "x" * 5_000, 2**70, "\ud800"], ids=["unknown", "large", "number", "text"])
def test_error_data_that_cannot_travel_is_left_out(data: Any) -> None:
    """Code and message arrive when the data cannot."""
    assert answered(NotFound("no", data=data)) == ErrorBody(-32007, "no")


@pytest.mark.parametrize(
    ("error", "arrives"),
    [
        (NotFound("no file \udcff"), ErrorBody(-32007, "no file ?")),
        (NotFound("x" * 9_000), ErrorBody(-32007, "x" * 1_000)),
        (NotFound("no", code=2**70), ErrorBody(-32603, "no")),
    ],
)
def test_error_itself_that_cannot_travel_is_made_plain(error: RPCError, arrives: ErrorBody) -> None:
    """A text that is none, or too long, and a code beyond 64 bits do not keep the caller waiting."""
    assert answered(error) == arrives


def test_codec_that_fails_leaves_the_data_out() -> None:
    """Whatever an encoder raises for the data, the error itself is sent."""
    encodings: Iterable[Any] = iter((fails, msgpack))
    assert answered(NotFound("no", data=1), lambda value: next(encodings)(value)) == ErrorBody(-32007, "no")  # noqa: PLW0108  # another one each time


def test_repr_shows_the_state() -> None:
    """A core in the debugger says where it stands."""
    core = NativeCore()
    assert repr(core) == "<NativeCore opening, last id 0, 0 bytes wait for 1>"
    core.receive_data(OPENING + pack_call(3, b"f", b"") + b"\xff")
    assert repr(core) == "<NativeCore open, last id 3, 1 bytes wait for 16>"
    core.receive_data(b"\xff" * 20)
    assert repr(core).startswith("<NativeCore closed")
    assert comparable(core.next_events())[-1][0] == Kind.CLOSED


def test_call_beyond_what_the_peer_takes_is_not_sent() -> None:
    """A call larger than the peer's HELLO allows is refused here, so that the connection is not lost over it."""
    core = NativeCore(client=True)
    server = NativeCore(hello=Hello(max_size=20))
    server.receive_data(b"".join(core.data_to_send()))
    core.receive_data(b"".join(server.data_to_send()))
    core.next_events()
    core.send_call(1, b"sum", bytes(17))
    for send in (
        lambda: core.send_call(2, b"sum", bytes(18)),
        lambda: (
            core.send((Kind.CALL, 2, (b"sum", bytes(9), 1.0, {})))
            or core.send((Kind.CALL, 2, (b"sum", bytes(10), 1.0, {})))
        ),
    ):
        core.data_to_send()
        with pytest.raises(ResourceExhausted, match="max_message_size"):
            send()


def test_metadata_is_text() -> None:
    """Metadata with anything but text is refused at the caller, before a frame is made of it."""
    with pytest.raises(ValueError, match="text"):
        pack_call(1, b"sum", b"", metadata={"a": 1})
