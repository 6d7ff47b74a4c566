"""The tools for tests: each finds what it is there to find, and is content with what is in order."""

import json
from typing import Any

import msgspec
import pytest

from rpcfast import Context, RPCError, Server
from rpcfast.codecs import MsgpackCodec, RawCodec, get_codec
from rpcfast.testing import check_codec, connect, feed, split_everywhere
from rpcfast.wire.events import Kind
from rpcfast.wire.jsonrpc import Contract, JsonRpcCore
from rpcfast.wire.native import OPENING, NativeCore, pack_call

STREAM = OPENING + pack_call(1, b"add", b"\x92\x01\x02") + pack_call(2, b"add", b"\x90", timeout=1.0)


async def test_connect_gives_a_client_of_a_server() -> None:
    """A call through `connect` reaches the function, its answer comes back, options reach the client."""
    server = Server()

    @server
    def tenant(ctx: Context) -> str:
        return ctx.metadata["tenant"]

    async with connect(server, metadata={"tenant": "7"}) as client:
        assert await client.tenant() == "7"


async def test_connect_runs_the_lifespan() -> None:
    """The server's lifespan is entered before the first call and left with the block."""
    from contextlib import asynccontextmanager

    seen = []

    @asynccontextmanager
    async def lifespan(server: Server) -> Any:
        seen.append("begun")
        yield
        seen.append("ended")

    async with connect(Server(lifespan=lifespan)):
        assert seen == ["begun"]
    assert seen == ["begun", "ended"]


@pytest.mark.parametrize("name", ["msgpack", "json"])
def test_our_codecs_keep_the_contract(name: str) -> None:
    """Both built-in general codecs pass the suite that plug-ins must pass."""
    check_codec(get_codec(name), name)


def test_a_codec_that_refuses_types_breaks_the_contract() -> None:
    """The raw codec, which carries bytes only, fails, and the text says at which types."""
    with pytest.raises(AssertionError, match=r"the codec 'raw' breaks its contract in \d+ places:(.|\n)*bind"):
        check_codec(RawCodec(), "raw")


class Broken(MsgpackCodec):
    """A codec whose pair is changed by a test."""

    def __init__(self, encode: Any = None, decode: Any = None) -> None:
        self._encode = encode
        self._decode = decode

    def bind(self, kind: Any, /) -> Any:
        encode, decode = super().bind(kind)
        return self._encode or encode, (lambda data: self._decode(decode, data)) if self._decode else decode


def loses_integers(decode: Any, data: bytes) -> Any:
    """Big integers become floats, as some JSON libraries make them."""
    value = decode(data)
    return float(value) if type(value) is int and value >= 2**63 else value


def lets_errors_out(decode: Any, data: bytes) -> Any:
    """Raise what no caller expects."""
    try:
        return decode(data)
    except msgspec.DecodeError as error:
        raise KeyError(str(error)) from error


def validates_nothing(_: Any, data: bytes) -> Any:
    """Decode without types."""
    return msgspec.msgpack.decode(data)


def goes_on(decode: Any, data: bytes) -> Any:
    """Take what is cut short for a whole."""
    for filler in (b"", b"\x01" * 100):
        try:
            return decode(data + filler)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            continue
    return [] if data else None


@pytest.mark.parametrize(
    ("codec", "complaint"),
    [
        (Broken(decode=loses_integers), "18446744073709551615 as <class 'int'> comes back as 1.8"),
        (Broken(decode=lets_errors_out), "none of rpcfast.errors.DECODE_ERRORS"),
        (Broken(decode=validates_nothing), "'text' is taken for <class 'int'>"),
        (Broken(decode=validates_nothing), "are decoded to"),
        (Broken(decode=goes_on), "which are cut short, are taken"),
        (Broken(encode=lambda value: bytearray(msgspec.msgpack.encode(value))), "gives bytearray, not bytes"),
        (Broken(encode=lambda value: msgspec.msgpack.encode(value, enc_hook=repr)), "that cannot travel is encoded"),
    ],
    ids=["integers", "errors", "types", "params", "cut", "bytearray", "anything"],
)
def test_each_way_to_break_the_contract_is_named(codec: Any, complaint: str) -> None:
    """A codec that is in order but for one fault is refused, in words that name the fault."""
    with pytest.raises(AssertionError) as caught:
        check_codec(codec)
    assert complaint in str(caught.value)


def test_a_codec_of_the_standard_library_shows_what_it_lacks() -> None:
    """The stdlib's JSON, bound to nothing, is told about bytes, dates and validation in one go."""

    class Plain:
        def bind(self, kind: Any, /) -> Any:
            return lambda value: json.dumps(value).encode(), json.loads

    with pytest.raises(AssertionError) as caught:
        check_codec(Plain(), "plain")
    for place in ("bytes", "datetime", "UUID", "ValidationError"):
        assert place in str(caught.value)


def test_feed_gives_events_and_answers() -> None:
    """`feed` takes events piece by piece, and what the core says by itself."""
    fed = feed(NativeCore(), [STREAM[:10], STREAM[10:]])
    assert [event[0] for event in fed.events] == [b"add", Kind.CALL]
    assert fed.answer.startswith(OPENING)


def test_feed_tells_the_end() -> None:
    """With `eof`, a message cut short is known as such."""
    assert feed(NativeCore(), [STREAM[:-1]], eof=True).events[-1][0] == Kind.CLOSED


@pytest.mark.parametrize(
    ("make", "stream"),
    [
        (NativeCore, STREAM),
        (lambda: JsonRpcCore(Contract([])), b'{"jsonrpc":"2.0","method":"no","id":1}\n[]{"a":1}'),
    ],
    ids=["native", "jsonrpc"],
)
def test_our_cores_do_not_mind_cuts(make: Any, stream: bytes) -> None:
    """Whole, byte by byte and cut anywhere gives the same events."""
    assert len(split_everywhere(make, stream)) >= 2


def test_a_core_that_minds_cuts_is_shown_the_pieces() -> None:
    """A core that takes each read for a message is refused."""

    class Naive:
        def __init__(self) -> None:
            self.got: list[Any] = []

        def receive_data(self, data: bytes) -> None:
            self.got.append((Kind.FAILED, 0, RPCError(data.hex())))

        def receive_eof(self) -> None: ...

        def next_events(self) -> list[Any]:
            got, self.got = self.got, []
            return got

        def data_to_send(self) -> list[bytes]:
            return []

    with pytest.raises(AssertionError, match="the cuts"):
        split_everywhere(Naive, b"ab")
