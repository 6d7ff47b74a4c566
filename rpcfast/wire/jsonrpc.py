"""JSON-RPC 2.0 (https://www.jsonrpc.org/specification) over a byte stream, the server's role; floor 1: no I/O.

Messages end with a newline or with their last bracket, so objects may be concatenated or pretty-printed. The good
path is one C call for all messages of a read: envelope, procedure and typed parameters together. Only what that call
refuses is cut out by `Splitter` and read again without types, to find the id, the code and every error.
"""

# What is read without types is Any, and isinstance narrows Any to "partially unknown".
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, Union

import msgspec
from msgspec.structs import astuple

from rpcfast.errors import (
    DECODE_ERRORS,
    ErrorBody,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    ResourceExhausted,
    RPCError,
)
from rpcfast.schema import ProcedureSpec, decode_custom, encode_custom_json
from rpcfast.wire.events import Event, Kind
from rpcfast.wire.jsontext import Splitter, first_repeated, may_repeat, repeats

__all__ = ["Contract", "JsonRpcCore", "answer_error", "answer_with", "inline_with", "params_of"]

Id = int | float | str | None
NO_ID: Final = msgspec.UNSET
MAX_BATCH: Final = 5_000
MAX_STRIKES: Final = 16

_HEAD: Final = b'{"jsonrpc":"2.0","id":'
_RESULT: Final = b',"result":'
_ERROR: Final = b',"error":'
_END: Final = b"}\n"

_encode: Final = msgspec.json.Encoder().encode
_encode_error: Final = msgspec.json.Encoder(enc_hook=encode_custom_json).encode
_decode_any: Final = msgspec.json.Decoder().decode
_decode_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode

params_of: Final = attrgetter("params")
"""A call event's payload is its whole message; this takes its parameters, decoded already."""


class Contract:
    """The messages that a set of procedures takes, built once: a tagged union, one Struct a procedure."""

    def __init__(self, procedures: Iterable[ProcedureSpec]) -> None:
        self.keys: dict[str, type[msgspec.Struct]] = {}
        self.optional: set[type[msgspec.Struct]] = set()
        """Messages that need no "params"."""
        for spec in procedures:
            self._enter(spec)
        self._build()

    def add(self, spec: ProcedureSpec) -> None:
        """Take one more; cores that use this contract know it from their next read on."""
        self._enter(spec)
        self._build()

    def _enter(self, spec: ProcedureSpec) -> None:
        optional = all(not p.required for p in spec.parameters)
        self.keys[spec.name] = message = _message(spec, optional=optional)
        if optional:
            self.optional.add(message)

    def _build(self) -> None:
        self.decode: Callable[[bytes], Any] = _refuse
        self.decode_lines: Callable[[bytes], Any] = _refuse
        if not self.keys:
            return
        calls: Any = Union[tuple(self.keys.values())]  # noqa: UP007  # made at run time
        decoder = msgspec.json.Decoder(Union[calls, list[calls]], dec_hook=decode_custom)  # noqa: UP007
        self.decode = decoder.decode
        self.decode_lines = decoder.decode_lines


def _refuse(_: bytes) -> Any:
    """The decoder of a service without procedures: no message fits."""
    raise msgspec.ValidationError("there are no procedures")


def _message(spec: ProcedureSpec, *, optional: bool) -> type[msgspec.Struct]:
    params: Any = ("params", spec.params, ()) if optional else ("params", spec.params)
    return msgspec.defstruct(
        f"{spec.name} call",
        [("jsonrpc", Literal["2.0"]), params, ("id", Id | msgspec.UnsetType, NO_ID)],
        tag_field="method",
        tag=spec.name,
        kw_only=True,
        gc=False,
    )


LARGE: Final = 256


def answer_with(encode: Callable[[Any], bytes]) -> Callable[[Any, Any, Any], None]:
    """The fast lane of `send((RESULT, …))`; see `native.answer_with`."""

    def answer(sink: Any, call_id: Any, result: Any) -> None:
        body = encode(result)
        if len(body) > LARGE:
            sink.check_size(len(body))
        sink.out += (_HEAD, _encode(call_id), _RESULT, body, _END)

    return answer


def inline_with(
    typed: Callable[[Any], Any],
    encode: Callable[[Any], bytes],
    explain: Callable[[Any, Exception], Exception],
    function: Callable[..., Any],
) -> Callable[[Any, Any, Any], None]:
    """A whole call by position in one function; see `native.inline_with`."""
    encode_id = _encode

    def handle(call_id: Any, payload: Any, sink: Any) -> None:
        try:
            params = typed(payload)
            if type(params) is not tuple:
                params = astuple(params)
        except DECODE_ERRORS as error:
            raise explain(payload, error) from None
        body = encode(function(*params))
        if len(body) > LARGE:
            sink.check_size(len(body))
        sink.out += (_HEAD, encode_id(call_id), _RESULT, body, _END)

    return handle


class JsonRpcCore:
    """The server's side of a stream of JSON-RPC messages."""

    def __init__(self, contract: Contract, *, max_size: int = 16 * 1024 * 1024, max_batch: int = MAX_BATCH) -> None:
        self.out: list[bytes] = []
        self._contract = contract
        self._max_size = max_size
        self._max_batch = max_batch
        self._events: list[Event] = []
        self._splitter = Splitter()
        self._strikes = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<JsonRpcCore {'closed' if self._closed else 'open'}, {len(self._splitter)} bytes wait>"

    @property
    def waiting(self) -> int:
        """Bytes of a message that has begun and not ended."""
        return len(self._splitter)

    def receive_data(self, data: bytes) -> None:
        """See `events.Core.receive_data`."""
        if self._splitter and (end := data.find(b"\n") + 1):
            # End the message that waits, so that one cut does not send the rest of the stream down the slow path.
            self._receive_slowly(data[:end])
            data = data[end:]
        if self._closed or not data:
            return
        if self._splitter or len(data) > self._max_size or not self._receive_at_once(data):
            self._receive_slowly(data)

    def _receive_at_once(self, data: bytes) -> bool:
        """Every message of a read in one call; False when one of them wants a closer look, and nothing was received."""
        cut = data.rfind(b"\n") + 1 or len(data)
        lines, before = data[:cut], len(self._events)
        try:
            if not lines.isascii():
                lines.decode()  # what the typed decoder skips, it does not check
            messages = self._contract.decode_lines(lines)
        except Exception:  # noqa: BLE001  # a user's class may raise anything as it is made
            return False
        ids = self._receive_messages(messages)
        if may_repeat(lines, len(messages), ids, self._least_params(messages)) and repeats(lines):
            del self._events[before:]
            return False
        if cut < len(data):
            self._receive_slowly(data[cut:])
        return True

    def _receive_messages(self, messages: Sequence[Any]) -> int:
        """Gives how many members "id" there are, or -1 when a batch makes that a longer story."""
        append, ids = self._events.append, len(messages)
        for message in messages:
            if type(message) is list:
                self._receive_batch(message)
                ids = -len(messages)
            elif message.id is NO_ID:
                append(_event_of(message))
                ids -= 1
            else:
                append((type(message), message.id, message))
        return ids

    def _least_params(self, messages: Sequence[Any]) -> int:
        """How many members "params" there are at least."""
        optional = self._contract.optional
        if not optional or optional.isdisjoint(map(type, messages)):
            return len(messages)
        return sum(type(message) not in optional or message.params != () for message in messages)

    def _receive_slowly(self, data: bytes) -> None:
        """Find where each message ends, then read each alone. Nothing after an end that cannot be found is run."""
        while True:
            for text in self._splitter.feed(data):
                if self._closed:
                    return
                self._receive_text(text)
            if self._splitter.size > self._max_size:
                self._too_large()
                return
            if not self._splitter.error:
                return
            self._malformed(ParseError(self._splitter.error))
            if not self._splitter.skip_line():
                self._close(ParseError("a malformed message of several lines: the next message cannot be found"))
            data = b""

    def _too_large(self) -> None:
        error = ResourceExhausted(f"a message is beyond the limit of {self._max_size} bytes; raise max_message_size")
        self._failed(NO_ID, error)
        self._close(error)

    def _malformed(self, error: RPCError) -> None:
        """Answer what is not JSON; a peer that sends nothing else is cut off, since answers are longer than garbage."""
        self._failed(NO_ID, error)
        self._strikes += 1
        if self._strikes >= MAX_STRIKES:
            self._close(ParseError(f"{MAX_STRIKES} malformed messages on one connection"))

    def _receive_text(self, text: bytes) -> None:
        """One whole message, whatever it is."""
        if len(text) > self._max_size:
            return self._too_large()
        repeated = may_repeat(text, 1, 1, 1) and repeats(text)
        if not repeated and self._receive_typed(text):
            return None
        try:
            value = _decode_any(text)
        except DECODE_ERRORS as error:
            return self._malformed(ParseError(f"the message is not JSON: {error}"))
        if repeated and (name := first_repeated(text)):
            self._failed(_id_of(value), InvalidRequest(f"the member {name} stands in one message twice"))
        elif isinstance(value, list):
            self._receive_batch(value, text)
        else:
            self._events.append(self._classify(value, text))
        return None

    def _receive_typed(self, text: bytes) -> bool:
        try:
            if not text.isascii():
                text.decode()
            message = self._contract.decode(text)
        except Exception:  # noqa: BLE001  # as in receive_data
            return False
        self._receive_messages((message,))
        return True

    def _receive_batch(self, items: list[Any], text: bytes = b"") -> None:
        """A batch of typed messages, or of values that were read without types from `text`."""
        if not items:
            self._failed(NO_ID, InvalidRequest("an empty batch; a batch holds at least one call"))
        elif len(items) > self._max_batch:
            error = ResourceExhausted(f"a batch of {len(items)} is beyond the limit of {self._max_batch}")
            self._failed(NO_ID, error)
        elif text:
            events = [self._classify(item, bytes(raw)) for item, raw in zip(items, _decode_items(text), strict=True)]
            self._events.append((Kind.BATCH, None, events))
        else:
            self._events.append((Kind.BATCH, None, [_event_of(item) for item in items]))

    def _classify(self, value: Any, text: bytes) -> Event:
        """One message, read without its types, to the event that it deserves."""
        if not isinstance(value, dict):
            return Kind.FAILED, NO_ID, InvalidRequest("a request is a JSON object")
        call_id = value.get("id", NO_ID)
        problem = _envelope_problem(value, call_id)
        if problem:
            return Kind.FAILED, _id_of(value), InvalidRequest(problem)
        key = self._contract.keys.get(value["method"])
        if key is None:
            if call_id is NO_ID:
                return Kind.IGNORED, NO_ID, None
            return Kind.FAILED, call_id, MethodNotFound(f"no procedure is named {_quote(value['method'])}")
        try:
            # From the text again: of a value read without types, a Decimal would have lost its digits.
            return _event_of(self._contract.decode(text))
        except Exception:  # noqa: BLE001  # as in receive_data
            return Kind.INVALID, call_id, (key, value.get("params", ()))

    def _failed(self, call_id: Any, error: RPCError) -> None:
        self._events.append((Kind.FAILED, call_id, error))

    def _close(self, error: RPCError) -> None:
        self._closed = True
        self._splitter = Splitter()
        self._events.append((Kind.CLOSED, 0, error))

    def receive_eof(self) -> None:
        """See `events.Core.receive_eof`. What waits is a message cut short."""
        if self._splitter and not self._closed:
            if not self._splitter.skipping:
                self._failed(NO_ID, ParseError("the connection ended in the middle of a message"))
            self._splitter = Splitter()

    def next_events(self) -> list[Event]:
        """See `events.Core.next_events`."""
        events, self._events = self._events, []
        return events

    def send(self, event: Event) -> None:
        """See `events.Core.send`: RESULT and ERROR with encoded bodies; BATCH with the answers of its items."""
        kind, call_id, payload = event
        if kind == Kind.BATCH:
            items = b"".join(payload).replace(b"}\n{", b"},{")  # a raw newline never stands inside an encoded item
            self.out += (b"[", items[:-1], b"]\n")
        elif kind in (Kind.RESULT, Kind.ERROR):
            self.out += pack_answer(kind, call_id, payload)

    def data_to_send(self) -> Sequence[bytes]:
        """See `events.Core.data_to_send`."""
        out = self.out.copy()
        self.out.clear()  # the same list for the core's whole life: a connection appends to it directly
        return out


def pack_answer(kind: int, call_id: Any, body: bytes) -> tuple[bytes, ...]:
    """The buffers of one answer; an id that could not be found is null (specification, section 5)."""
    return (
        _HEAD,
        b"null" if call_id is NO_ID else _encode(call_id),
        _RESULT if kind == Kind.RESULT else _ERROR,
        body,
        _END,
    )


def answer_error(sink: Any, call_id: Any, error: RPCError) -> None:
    """The fast lane of `send((ERROR, …))`. What JSON cannot carry, or is too large, is left out."""
    try:
        body = _encode_error(ErrorBody.of(error))
        if len(body) > LARGE:
            sink.check_size(len(body))
    except Exception:  # noqa: BLE001  # the encoder of a registered type may raise anything
        body = _encode(ErrorBody.plain(error))
    sink.out += pack_answer(Kind.ERROR, call_id, body)


def _event_of(message: Any) -> Event:
    if message.id is NO_ID:
        return Kind.NOTIFICATION, None, (type(message), message, None, None)
    return type(message), message.id, message


def _envelope_problem(value: dict[str, Any], call_id: Any) -> str:
    if value.get("jsonrpc") != "2.0":
        return 'the member "jsonrpc" must be "2.0"'
    if not isinstance(value.get("method"), str):
        return 'the member "method" must be a string'
    if not isinstance(value.get("params", ()), list | dict | tuple):
        return 'the member "params" must be an array or an object'
    if call_id is not NO_ID and _id_of(value) is NO_ID:
        return 'the member "id" must be a string, a number or null'
    return ""


def _id_of(value: Any) -> Any:
    call_id = value.get("id", NO_ID) if isinstance(value, dict) else NO_ID
    return call_id if call_id is None or type(call_id) in (int, float, str) else NO_ID


def _quote(name: str, longest: int = 64) -> str:
    return repr(name if len(name) <= longest else name[:longest] + "…")
