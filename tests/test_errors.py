"""The closed set of errors: codes, declared fields, and how an error travels."""

import copy
import pickle
from typing import ClassVar

import msgspec
import pytest

from rpcfast import errors
from rpcfast.errors import BY_CODE, DECODE_ERRORS, ErrorBody, InternalError, NotFound, RPCError

NAMES = [name for name in errors.__all__ if name != "RPCError"]


class InsufficientFunds(RPCError):
    """A declared error with a field that must be given and one that need not."""

    code = 4001
    balance: int
    needed: int = 0
    limit: ClassVar[int] = 9


class Overdrawn(InsufficientFunds):
    """A field more."""

    code = 4002
    since: str = "today"


@pytest.mark.parametrize("name", NAMES)
def test_class_of_the_closed_set(name: str) -> None:
    """Each has a code of its own, found again by that code, an HTTP status of an error, and a gRPC status."""
    cls = getattr(errors, name)
    assert BY_CODE[cls.code] is cls
    assert 400 <= cls.http_status < 600
    assert cls.grpc_status == cls.grpc_status.upper()
    assert ErrorBody(cls.code, "x").to_error().__class__ is cls
    assert cls.__doc__


def test_codes_of_the_specification() -> None:
    """JSON-RPC 2.0, section 5.1; the others lie in the range that it leaves to servers."""
    fixed = {"ParseError": -32700, "InvalidRequest": -32600, "MethodNotFound": -32601}
    fixed |= {"InvalidParams": -32602, "InternalError": -32603}
    codes = {name: getattr(errors, name).code for name in NAMES}
    assert {name: codes.pop(name) for name in fixed} == fixed
    assert all(-32099 <= code <= -32000 for code in codes.values())
    assert len(BY_CODE) == len(NAMES)


def test_grpc_statuses_are_those_of_grpc() -> None:
    """Every status is a name of grpc/doc/statuscodes.md."""
    known = [
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ]
    assert {error.grpc_status for error in (*BY_CODE.values(), RPCError)} <= set(known)


def test_message_code_and_data() -> None:
    """An error has its class's code unless it is given one, and its class's name where it has no text."""
    assert (NotFound("gone").code, NotFound("gone", code=7).code, NotFound.code) == (-32007, 7, -32007)
    assert (str(NotFound("gone")), str(NotFound())) == ("gone", "NotFound")
    assert repr(NotFound("gone", data=[1])) == "NotFound('gone', code=-32007, data=[1])"
    assert NotFound("gone").args == ("gone",)


def test_declared_fields_travel_in_data() -> None:
    """Fields are attributes and become the data; a class variable is none; a subclass adds its own."""
    error = InsufficientFunds("not enough", balance=10, needed=25)
    assert (error.balance, error.needed, error.data) == (10, 25, {"balance": 10, "needed": 25})
    assert InsufficientFunds("not enough", balance=10).data == {"balance": 10, "needed": 0}
    assert Overdrawn.fields == ("balance", "needed", "since")
    assert Overdrawn(balance=1).data == {"balance": 1, "needed": 0, "since": "today"}


def test_data_that_is_given_stays() -> None:
    """Data given beside fields is what travels."""
    assert InsufficientFunds(balance=1, data="mine").data == "mine"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, r"InsufficientFunds\(\) is missing the field 'balance'"),
        ({"balance": 1, "colour": 2}, r"InsufficientFunds\(\) has no field 'colour'"),
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, int], text: str) -> None:
    """A missing or unknown field is an error where it is raised."""
    with pytest.raises(TypeError, match=text):
        InsufficientFunds("x", **fields)
    with pytest.raises(TypeError, match=r"NotFound\(\) has no field 'a'"):
        NotFound("x", a=1)


@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])  # noqa: S301
@pytest.mark.parametrize(
    "error", [NotFound("gone", code=7, data=[1]), InsufficientFunds("no", balance=10), Overdrawn(balance=1)]
)
def test_errors_cross_processes_whole(again: object, error: RPCError) -> None:
    """A copy has class, text, code, data and fields."""
    other = again(error)
    assert type(other) is type(error)
    assert (str(other), other.code, other.data, other.args) == (str(error), error.code, error.data, error.args)
    assert all(getattr(other, name) == getattr(error, name) for name in error.fields)


def test_body_carries_an_error() -> None:
    """Code, message and data arrive; a code outside of the closed set becomes a plain error."""
    for codec in (msgspec.json, msgspec.msgpack):
        body = codec.decode(codec.encode(ErrorBody.of(NotFound("gone", data={"a": 1}))), type=ErrorBody)
        error = body.to_error()
        assert (type(error), error.message, error.data) == (NotFound, "gone", {"a": 1})
    error = ErrorBody(4001, "no", {"balance": 1}).to_error()
    assert (type(error), error.code, error.data) == (RPCError, 4001, {"balance": 1})


def test_body_without_data_leaves_it_out() -> None:
    """No member stands for data that there is not."""
    assert msgspec.json.encode(ErrorBody.of(NotFound("gone"))) == b'{"code":-32007,"message":"gone"}'


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (NotFound("gone", data=object()), -32007, "gone"),
        (NotFound("a\udcffb"), -32007, "a?b"),
        (NotFound("x" * 5_000), -32007, "x" * 1_000),
        (RPCError("x", code=2**63), InternalError.code, "x"),
        (RPCError("x", code=-(2**63)), -(2**63), "x"),
        (RPCError("x", code="x"), InternalError.code, "x"),
        (RPCError(5), -32000, "5"),
    ],
)
def test_plain_body_can_always_be_encoded(error: RPCError, code: int, message: str) -> None:
    """Whatever a handler put into an error, its plain form travels in every codec."""
    body = ErrorBody.plain(error)
    assert body == ErrorBody(code, message)
    assert msgspec.json.decode(msgspec.json.encode(body), type=ErrorBody) == body
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=ErrorBody) == body


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        ("json", b"{"),
        ("json", b'"\xff"'),
        ("json", b"[" * 100_000),
        ("json", b"1e999"),
        ("msgpack", b"\xc1"),
        ("msgpack", b"\xa1\xff"),
        ("msgpack", b"\x91" * 100_000 + b"\x01"),
        ("msgpack", b"\xc7\x0c\xff" + b"\x00" * 4 + b"\x7f" + b"\xff" * 7),
        ("msgpack", b"\xdd\xff\xff\xff\xff"),
        ("msgpack", b"\xdf\xff\xff\xff\xff"),
        ("msgpack", b"\xdb\xff\xff\xff\xff"),
    ],
)
def test_decode_errors_are_all_that_decoders_raise(codec: str, data: bytes) -> None:
    """Each way to raise that is known is in the tuple."""
    with pytest.raises(DECODE_ERRORS):
        getattr(msgspec, codec).decode(data)
