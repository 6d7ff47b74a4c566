"""How values become bytes; floor 2: a codec is bound to a type once and gives the pair (encode, decode).

A codec never sees a frame, a connection or a procedure. Bad bytes leave `decode` as one of `errors.DECODE_ERRORS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, get_args, get_origin

import msgspec
import orjson

from rpcfast.errors import DECODE_ERRORS
from rpcfast.schema import decode_custom, encode_custom, encode_custom_json, is_open

__all__ = ["Codec", "get_codec", "register_codec"]

Encode: TypeAlias = Callable[[Any], bytes]
Decode: TypeAlias = Callable[[bytes], Any]

MAX_NESTING: Final = 128
"""Deepest nesting of lists and maps that a peer may send."""


class Codec(Protocol):
    """What a codec is: one method, called once for each type that a connection needs."""

    def bind(self, kind: Any, /) -> tuple[Encode, Decode]:
        """Give `(encode, decode)` for values of the type `kind`.

        `decode` validates: it raises `msgspec.ValidationError` for a value of another type, and `msgspec.DecodeError`
        (or `ValueError`) for bytes that are none. Raises `TypeError` when the codec cannot carry the type.
        """
        ...


def nesting_of(value: Any) -> int:
    """How deep lists and dicts nest in `value`: level by level, so that depth costs no stack, until past the limit."""
    depth, level = 0, [value] if type(value) in _CONTAINERS or isinstance(value, msgspec.Struct) else []
    while level and depth <= MAX_NESTING:
        level = [child for item in level for child in _children(item) if type(child) not in _LEAVES]
        level = [child for child in level if type(child) in _CONTAINERS or isinstance(child, msgspec.Struct)]
        depth += 1
    return depth


_CONTAINERS: Final = frozenset({list, dict, tuple})
_LEAVES: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""What most values are made of: dropped first, since the thorough look costs more."""


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        members: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]  # narrowed from Any
        return members.values()
    return msgspec.structs.astuple(value) if isinstance(value, msgspec.Struct) else value


def bounded(decode: Decode, kind: Any) -> Decode:
    """`decode` for what a peer sends: nesting beyond the limit is refused; types that cannot nest so pay nothing."""
    if not is_open(kind):
        return decode

    def decode_bounded(data: bytes) -> Any:
        value = decode(data)
        if len(data) > MAX_NESTING and nesting_of(value) > MAX_NESTING:
            raise msgspec.DecodeError(f"nested deeper than {MAX_NESTING} levels")
        return value

    return decode_bounded


class MsgpackCodec:
    """MessagePack by msgspec: the default of native frames."""

    def bind(self, kind: Any, /) -> tuple[Encode, Decode]:
        """See `Codec.bind`."""
        encoder = msgspec.msgpack.Encoder(enc_hook=encode_custom)
        decoder = msgspec.msgpack.Decoder(kind, dec_hook=decode_custom)
        return encoder.encode, decoder.decode


class JsonCodec:
    """JSON by msgspec; text and lists of floats are written by orjson, which is 1.5 to 6 times faster at those."""

    def bind(self, kind: Any, /) -> tuple[Encode, Decode]:
        """See `Codec.bind`."""
        encode = orjson.dumps if _is_bulk(kind) else msgspec.json.Encoder(enc_hook=encode_custom_json).encode
        decoder = msgspec.json.Decoder(kind, dec_hook=decode_custom)
        return encode, decoder.decode


def _is_bulk(kind: Any) -> bool:
    """Text, and lists of floats at any depth. Not of integers: orjson refuses those beyond 64 bits."""
    if get_origin(kind) is list:
        return _is_bulk(get_args(kind)[0]) and get_args(kind)[0] is not str
    return kind is str or kind is float


class RawCodec:
    """Bytes as they are: for procedures that take one `bytes` and return `bytes`. Errors travel as msgpack."""

    def bind(self, kind: Any, /) -> tuple[Encode, Decode]:
        """See `Codec.bind`."""
        if kind is bytes or kind is Any:
            return bytes, bytes
        if _single_bytes(kind):
            return _only, lambda data: (data,)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return MsgpackCodec().bind(kind)
        raise TypeError("the raw codec carries one bytes parameter and a bytes result, nothing else")


def _single_bytes(kind: Any) -> bool:
    arms = (kind, *get_args(kind))
    return any(get_origin(arm) is tuple and get_args(arm) in ((bytes,), (Any, ...)) for arm in arms)


def _only(values: tuple[Any, ...] | dict[str, Any]) -> bytes:
    if len(values) == 1 and isinstance(values, tuple) and isinstance(values[0], bytes | bytearray):
        return bytes(values[0])
    raise TypeError("the raw codec carries exactly one bytes parameter, by position")


_codecs: dict[str, Codec] = {"json": JsonCodec(), "msgpack": MsgpackCodec(), "raw": RawCodec()}


def register_codec(name: str, codec: Codec) -> None:
    """Add a codec under `name`, on both sides, before connections open; a client asks for it by `codec=name`.

    `rpcfast.testing.check_codec` says whether it keeps the contract. Raises `ValueError` for a name that is taken or
    is not 1 to 32 characters of ASCII, `TypeError` for an object without `bind`.
    """
    if name in _codecs:
        raise ValueError(f"a codec named {name!r} is registered already")
    if not (name.isascii() and 1 <= len(name) <= 32):  # noqa: PLR2004  # the cap of docs/protocol.md
        raise ValueError(f"a codec's name must be 1 to 32 ASCII characters, not {name!r}")
    if not callable(getattr(codec, "bind", None)):
        raise TypeError(f"{codec!r} has no bind(type) method; see rpcfast.codecs.Codec")
    _codecs[name] = codec


def get_codec(name: str) -> Codec:
    """The codec registered as `name`; raises `LookupError` that names those there are."""
    try:
        return _codecs[name]
    except KeyError:
        known = ", ".join(sorted(_codecs))
        raise LookupError(f"no codec is named {name!r}; there are: {known}") from None


def decode_any(codec: Codec, data: bytes) -> Any:
    """Decode leniently to builtins, for error messages; raises one of `DECODE_ERRORS` when the bytes are none."""
    return codec.bind(Any)[1](data)


__all__ += ["DECODE_ERRORS", "MAX_NESTING", "decode_any"]
