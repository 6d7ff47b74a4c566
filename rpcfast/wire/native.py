"""Native frames, version 1: bytes to events and back, both roles; floor 1: no I/O, no codec, no clock.

Byte by byte in docs/protocol.md, with golden bytes in tests/golden/. The header's last four fields are read as one
32-bit word: a call without flags is `CALL_WORD + name size`, a result is exactly `RESULT_WORD`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from rpcfast.errors import DECODE_ERRORS, ErrorBody, InvalidRequest, ParseError, ResourceExhausted, RPCError
from rpcfast.wire.events import Event, Kind

__all__ = [
    "MAGIC",
    "OPENING",
    "Hello",
    "NativeCore",
    "answer_error_with",
    "answer_with",
    "inline_with",
    "pack_call",
    "pack_frame",
]

MAGIC: Final = b"\xf5rpc"
"""F5 begins no UTF-8 text, no msgpack-rpc request, no TLS record: nothing else on the port starts with it."""
VERSION: Final = 1
OPENING: Final = MAGIC + bytes([VERSION])

HEADER: Final = Struct(">IQI")
HEADER_SIZE: Final = 16
CALL_WORD: Final = Kind.CALL << 24
RESULT_WORD: Final = Kind.RESULT << 24
ERROR_WORD: Final = Kind.ERROR << 24
RESULT: Final = Kind.RESULT

IGNORE: Final = 0x80
TIMEOUT: Final = 0x01
METADATA: Final = 0x02
_FLAGS: Final = IGNORE | TIMEOUT | METADATA

MAX_NAME: Final = 255
MAX_CALL_WORD: Final = CALL_WORD + MAX_NAME
MAX_METADATA: Final = 16 * 1024
MAX_METADATA_FIELDS: Final = 100
MAX_HELLO: Final = 4096
MAX_MICROSECONDS: Final = 2**64 - 1

_SPOKEN: Final = frozenset(
    {
        Kind.CALL,
        Kind.NOTIFICATION,
        Kind.RESULT,
        Kind.ERROR,
        Kind.CANCEL,
        Kind.PING,
        Kind.PONG,
        Kind.GOING_AWAY,
        Kind.HELLO,
    }
)


class Hello(msgspec.Struct, omit_defaults=True):
    """A side's settings, its first frame. A member that is not known is skipped."""

    codec: str = "msgpack"
    """Name of the codec of every body on this connection: the client's choice. A server's own is not looked at."""
    max_size: int = 16 * 1024 * 1024
    """The largest frame, without its header, that this side takes: bytes."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_hello: Final = msgspec.msgpack.Decoder(Hello).decode
_decode_error: Final = msgspec.msgpack.Decoder(ErrorBody).decode
_decode_metadata: Final = msgspec.msgpack.Decoder(dict[str, str]).decode


def pack_frame(kind: int, call_id: int = 0, body: bytes = b"") -> bytes:
    """A frame without flags and name."""
    return HEADER.pack(len(body), call_id, kind << 24) + body


def pack_call(
    call_id: int,
    name: bytes,
    body: bytes,
    *,
    kind: int = Kind.CALL,
    timeout: float | None = None,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """A call or notification; `timeout` is the time that remains, in seconds.

    Raises `ValueError` for a name or metadata beyond their caps, and for a timeout that is no number.
    """
    if not 0 < len(name) <= MAX_NAME:
        raise ValueError(f"a procedure's name must be 1 to {MAX_NAME} bytes, not {len(name)}")
    flags, extra = 0, b""
    if timeout is not None:
        flags |= TIMEOUT
        extra = int(min(max(timeout * 1e6, 0), MAX_MICROSECONDS)).to_bytes(8, "big")
    if metadata:
        flags |= METADATA
        if not all(type(text) is str for field in metadata.items() for text in field):
            raise ValueError("metadata is text by text: both a field's name and its value are str")
        packed = _encode(metadata)
        if len(packed) > MAX_METADATA or len(metadata) > MAX_METADATA_FIELDS:
            raise ValueError(f"metadata is at most {MAX_METADATA_FIELDS} fields and {MAX_METADATA} bytes")
        extra += len(packed).to_bytes(2, "big") + packed
    word = kind << 24 | flags << 16 | len(name)
    return HEADER.pack(len(extra) + len(name) + len(body), call_id, word) + extra + name + body


_pack: Final = HEADER.pack


def answer_with(encode: Callable[[Any], bytes]) -> Callable[[Any, int, Any], None]:
    """The fast lane of `send((RESULT, …))`: a function that appends the answer to `sink.out`, with `encode` bound.

    A body beyond `LARGE` bytes is announced to `sink.check_size` first, so that small answers pay one comparison.
    """
    pack, large = HEADER.pack, LARGE

    def answer(sink: Any, call_id: int, result: Any) -> None:
        body = encode(result)
        if len(body) > large:
            sink.check_size(len(body))
        out = sink.out
        out.append(pack(len(body), call_id, RESULT_WORD))
        out.append(body)

    return answer


def inline_with(
    typed: Callable[[bytes], Any],
    encode: Callable[[Any], bytes],
    explain: Callable[[bytes, Exception], Exception],
    function: Callable[..., Any],
) -> Callable[[int, bytes, Any], None]:
    """A whole call by position in one function: read, run, `answer_with(encode)`, unrolled as it is the hot path."""
    pack, large = HEADER.pack, LARGE

    def handle(call_id: int, payload: bytes, sink: Any) -> None:
        try:
            params = typed(payload)
            if type(params) is not tuple:
                params = astuple(params)
        except DECODE_ERRORS as error:
            raise explain(payload, error) from None
        body = encode(function(*params))
        if len(body) > large:
            sink.check_size(len(body))
        out = sink.out
        out.append(pack(len(body), call_id, RESULT_WORD))
        out.append(body)

    return handle


def answer_error_with(encode: Callable[[Any], bytes], max_size: int) -> Callable[[Any, int, RPCError], None]:
    """The fast lane of `send((ERROR, …))`. What the codec cannot carry, or is too large, is left out."""

    def answer_error(sink: Any, call_id: int, error: RPCError) -> None:
        try:
            body = encode(ErrorBody.of(error))
        except Exception:  # noqa: BLE001  # a codec, or the encoder of a registered type, may raise anything
            body = b""
        if not 0 < len(body) <= max_size:
            body = encode(ErrorBody.plain(error))
        sink.out += (HEADER.pack(len(body), call_id, ERROR_WORD), body)

    return answer_error


LARGE: Final = 256
SMALL_CHUNK: Final = 512
MIN_RUN: Final = 4
MAX_RUN_SIZE: Final = 1024


@lru_cache(256)
def _shape(name_size: int, body_size: int) -> Struct:
    return Struct(f">IQI{name_size}s{body_size}s")


def _beyond(size: int, limit: int) -> ResourceExhausted:
    return ResourceExhausted(f"the call of {size} bytes is beyond what the peer takes: {limit}, its max_message_size")


class NativeCore:
    """One side of a connection of native frames. `client` says who opens; both may call."""

    def __init__(self, *, client: bool = False, hello: Hello | None = None) -> None:
        self.out: list[bytes] = []
        self.peer = Hello(max_size=2**32 - 1)  # until it says less: a refusal must not rest on a guess
        self.last_id = 0
        """The largest id of a call that the peer made."""
        self.ignored = 0
        """Frames skipped because they asked to be ignored when unknown."""
        self._client = client
        self._hello = hello or Hello()
        self._opened = False
        self._begun = False  # a frame came: it is too late for a hello
        self._closed = False
        self._plain = False  # frames come, and none is cut: the next byte begins one
        self._events: list[Event] = []
        self._chunks: list[bytes | bytearray] = []
        self._have = 0
        self._need = 1  # of the opening each byte is looked at as it comes: garbage is known by its first
        if client:
            self._open()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._opened else "opening"
        return f"<NativeCore {state}, last id {self.last_id}, {self._have} bytes wait for {self._need}>"

    @property
    def waiting(self) -> int:
        """Bytes of a frame that has begun and not ended."""
        return self._have

    def _open(self) -> None:
        self.out.append(OPENING + pack_frame(Kind.HELLO, 0, _encode(self._hello)))

    def receive_data(self, data: bytes) -> None:  # noqa: C901  # the hot loop, kept in one piece
        """See `events.Core.receive_data`."""
        if not self._plain:
            if not self._closed:
                self._receive_waiting(data)
            return
        append, unpack, last_id = self._events.append, HEADER.unpack_from, self.last_id
        max_size, length, need, last_word, last_size = self._hello.max_size, len(data), HEADER_SIZE, 0, 0
        stop = 0
        while length - stop >= HEADER_SIZE:
            size, call_id, word = unpack(data, stop)
            start = stop + HEADER_SIZE
            end = start + size
            if end > length or size > max_size:
                need += size
                break
            split = start + word - CALL_WORD
            if start < split <= end and last_id < call_id and word <= MAX_CALL_WORD:
                last_id = call_id
                append((data[start:split], call_id, data[split:end]))
            elif word == RESULT_WORD:
                append((RESULT, call_id, data[start:end]))
            else:
                self.last_id = last_id
                if not self._receive_other(call_id, word, data[start:end]):
                    return
                last_id = self.last_id
            stop = end
            if word == last_word and size == last_size:
                self.last_id = last_id
                stop = self._receive_run(data, stop, size, word)
                last_id = self.last_id
            last_word, last_size = word, size
        self.last_id = last_id
        if stop >= HEADER_SIZE:
            self._begun = True
        if need > HEADER_SIZE + max_size:
            self._too_large(need - HEADER_SIZE)
        elif stop < length:
            self._keep(data[stop:], need)

    def _receive_waiting(self, data: bytes) -> None:
        """Bytes that go on with a frame, or with the opening. A long frame is joined once, when it is whole."""
        self._chunk(data)
        if self._have < self._need:
            return
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._have = 0
        self._plain = self._opened
        if self._opened:
            self.receive_data(data)
        else:
            self._receive_opening(data)

    def _chunk(self, data: bytes) -> None:
        chunks = self._chunks
        if len(data) >= SMALL_CHUNK:
            chunks.append(data)
        else:
            # Collected, since an object for every two bytes would take thirty times the memory of what came.
            if not chunks or type(chunks[-1]) is not bytearray:
                chunks.append(bytearray())
            chunks[-1] += data
        self._have += len(data)

    def _receive_opening(self, data: bytes) -> None:
        if data[: len(OPENING)] != OPENING[: len(data)]:
            self._fail(
                ParseError(
                    f"this is not rpcfast's native protocol, version {VERSION}: it opens with {OPENING.hex(' ')}"
                )
            )
        elif len(data) < len(OPENING):
            self._keep(data, len(data) + 1)  # a wrong byte is refused as it comes
        else:
            self._opened = self._plain = True
            if not self._client:
                self._open()
            self.receive_data(data[len(OPENING) :])

    def _keep(self, data: bytes, need: int) -> None:
        if data:
            self._chunks.append(data)
            self._plain = False
        self._have, self._need = len(data), need

    def _receive_run(self, data: bytes, stop: int, size: int, word: int) -> int:
        """Frames of one size and name length that follow each other, taken apart in C: about 120 ns a frame less.

        A burst of calls to one procedure is made of such runs, and so are its results. Ends at the first other frame;
        gives the place where it begins.
        """
        name_size = word & 0xFFFF
        count = (len(data) - stop) // (HEADER_SIZE + size)
        if not count >= MIN_RUN or not name_size <= size <= MAX_RUN_SIZE:
            return stop
        shape = _shape(name_size, size - name_size)
        events, last_id, before = self._events, self.last_id, len(self._events)
        append = events.append
        frames = shape.iter_unpack(memoryview(data)[stop : stop + count * shape.size])
        if word == RESULT_WORD:
            for frame_size, call_id, frame_word, _, body in frames:
                if frame_size != size or frame_word != word:
                    break
                append((RESULT, call_id, body))
        elif CALL_WORD < word <= MAX_CALL_WORD:
            for frame_size, call_id, frame_word, name, body in frames:
                if frame_size != size or frame_word != word or call_id <= last_id:
                    break
                last_id = call_id
                append((name, call_id, body))
            self.last_id = last_id
        return stop + (len(events) - before) * shape.size

    def _receive_other(self, call_id: int, word: int, body: bytes) -> bool:
        """Every frame that is no plain call and no result. False when it ended the connection."""
        kind, flags, name_size = word >> 24, word >> 16 & 0xFF, word & 0xFFFF
        if kind not in _SPOKEN:
            if not flags & IGNORE:
                return self._fail(InvalidRequest(f"frames of kind {kind} are not spoken here"))
            self.ignored += 1
            self._begun = True
            return True
        try:
            if kind in (Kind.CALL, Kind.NOTIFICATION):
                self._receive_call(kind, call_id, flags, name_size, body)
            elif flags & ~IGNORE or name_size:
                raise InvalidRequest(f"a frame of kind {kind} has neither flags nor a name")
            else:
                self._events.append((kind, call_id, self._read_body(kind, body)))
        except RPCError as error:
            return self._fail(error)
        except DECODE_ERRORS as error:
            return self._fail(ParseError(f"a frame of kind {kind} cannot be read: {error}"))
        return True

    def _receive_call(  # noqa: C901 - the checks of one frame, in the order of its parts
        self, kind: int, call_id: int, flags: int, name_size: int, body: bytes
    ) -> None:
        if kind == Kind.CALL:
            if call_id <= self.last_id:
                raise InvalidRequest(f"call id {call_id} does not grow: the last one was {self.last_id}")
            self.last_id = call_id
        elif call_id:
            raise InvalidRequest("a notification's id is 0")
        if flags & ~_FLAGS:
            raise InvalidRequest(f"unknown flags {flags & ~_FLAGS:#04x} in a call")
        timeout, metadata = None, None
        if flags & TIMEOUT:
            if len(body) < 8:  # noqa: PLR2004  # a u64
                raise InvalidRequest("a call is shorter than its timeout")
            timeout, body = int.from_bytes(body[:8], "big") / 1e6, body[8:]
        if flags & METADATA:
            size = int.from_bytes(body[:2], "big")
            if len(body) < 2 + size or size > MAX_METADATA:
                raise InvalidRequest(f"metadata is longer than its call, or than {MAX_METADATA} bytes")
            metadata, body = _decode_metadata(body[2 : 2 + size]), body[2 + size :]
            if len(metadata) > MAX_METADATA_FIELDS:
                raise InvalidRequest(f"metadata has more than {MAX_METADATA_FIELDS} fields")
        if not 0 < name_size <= min(MAX_NAME, len(body)):
            raise InvalidRequest(f"a call's name must be 1 to {MAX_NAME} bytes and within its frame, not {name_size}")
        self._events.append((kind, call_id, (body[:name_size], body[name_size:], timeout, metadata)))

    def _read_body(self, kind: int, body: bytes) -> Any:
        if kind == Kind.HELLO:
            if self._begun or self._events:
                raise InvalidRequest("a hello is the first frame, or there is none")
            if len(body) > MAX_HELLO:
                raise InvalidRequest(f"a hello is longer than {MAX_HELLO} bytes")
            self.peer = _decode_hello(body)
            return self.peer
        if kind == Kind.GOING_AWAY:
            return _decode_error(body) if body else None
        return body

    def _too_large(self, size: int) -> None:
        limit = self._hello.max_size
        self._fail(ResourceExhausted(f"a frame of {size} bytes is beyond the limit of {limit}; raise max_message_size"))

    def _fail(self, error: RPCError) -> bool:
        """The peer broke the protocol: say why, read no more."""
        self._closed = True
        self._plain = False
        self._chunks.clear()
        self._have = 0
        if not self._opened and not self._client:
            self._open()
        self.send((Kind.GOING_AWAY, self.last_id, ErrorBody.of(error)))
        self._events.append((Kind.CLOSED, 0, error))
        return False

    def take_sole_result(self, data: bytes, call_id: int) -> bytes | None:
        """The fast lane of `receive_data` for a read that is one whole result, `call_id`'s: its body.

        None: it is something else, and nothing was taken.
        """
        if len(data) >= HEADER_SIZE and self._opened and not (self._have or self._closed):
            size, found, word = HEADER.unpack_from(data)
            if found == call_id and word == RESULT_WORD and size == len(data) - HEADER_SIZE <= self._hello.max_size:
                return data[HEADER_SIZE:]
        return None

    def receive_eof(self) -> None:
        """See `events.Core.receive_eof`. A frame cut short is an error; a clean end is not."""
        if self._have and not self._closed:
            self._fail(ParseError(f"the connection ended in the middle of a frame, after {self._have} bytes of it"))

    def next_events(self) -> list[Event]:
        """See `events.Core.next_events`."""
        events, self._events = self._events, []
        return events

    def send(self, event: Event) -> None:
        """See `events.Core.send`; `payload` of CALL and NOTIFICATION is `(name, body, timeout, metadata)`.

        Raises `ResourceExhausted` for a call larger than the peer takes, `ValueError` for a name or metadata that no
        frame takes; nothing is queued then.
        """
        kind, call_id, payload = event
        if kind in (Kind.CALL, Kind.NOTIFICATION):
            name, body, timeout, metadata = payload
            frame = pack_call(call_id, name, body, kind=kind, timeout=timeout, metadata=metadata)
            if len(frame) - HEADER_SIZE > self.peer.max_size:
                raise _beyond(len(frame) - HEADER_SIZE, self.peer.max_size)
            self.out.append(frame)
        elif kind in (Kind.GOING_AWAY, Kind.HELLO):
            self.out.append(pack_frame(kind, call_id, b"" if payload is None else _encode(payload)))
        else:
            self.out.append(pack_frame(kind, call_id, payload or b""))

    def send_call(self, call_id: int, name: bytes, body: bytes) -> None:
        """The fast lane of `send((CALL, …))` for a call that carries nothing but parameters; raises as that does."""
        size = len(name)
        if not 0 < size <= MAX_NAME:
            raise ValueError(f"a procedure's name must be 1 to {MAX_NAME} bytes, not {size}")
        size_of_all = size + len(body)
        if size_of_all > self.peer.max_size:
            raise _beyond(size_of_all, self.peer.max_size)
        self.out.append(_pack(size_of_all, call_id, CALL_WORD + size) + name + body)

    def data_to_send(self) -> Sequence[bytes]:
        """See `events.Core.data_to_send`."""
        out = self.out.copy()
        self.out.clear()  # the same list for the core's whole life: a connection appends to it directly
        return out
