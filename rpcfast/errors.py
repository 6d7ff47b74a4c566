"""The closed set of errors and their codes; floor 0: imports nothing of ours.

Every failure that leaves this library is an `RPCError`. Codes are literals, so that they can be compared with their
specifications by eye: JSON-RPC 2.0 section 5.1, RFC 9110 section 15, grpc/doc/statuscodes.md.
"""

from __future__ import annotations

import inspect
import sys
from functools import partial
from typing import Any, ClassVar, Final, get_origin

import msgspec

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Cancelled",
    "DeadlineExceeded",
    "FailedPrecondition",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "MethodNotFound",
    "NotFound",
    "ParseError",
    "PermissionDenied",
    "RPCError",
    "ResourceExhausted",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
]

DECODE_ERRORS: Final = (
    msgspec.MsgspecError,
    UnicodeDecodeError,  # invalid UTF-8 inside a string
    RecursionError,  # nesting beyond the interpreter's limit
    ValueError,  # a msgpack timestamp in the year 10000
    OverflowError,
    MemoryError,
)
"""All that a msgspec decoder raises for bad bytes: more than `DecodeError`. The one place that knows."""


class RPCError(Exception):
    """A failed call.

    `code` is the JSON-RPC code, `message` one line for a person, `data` what else travels (any value that the codec
    takes). A subclass may declare fields by annotation; they are given by keyword, travel in `data`, and are
    attributes at the caller::

        class InsufficientFunds(RPCError):
            code = 4001
            balance: int
            needed: int = 0


        raise InsufficientFunds("not enough", balance=10, needed=25)
    """

    code: int = -32000
    http_status: ClassVar[int] = 400
    grpc_status: ClassVar[str] = "FAILED_PRECONDITION"
    fields: ClassVar[tuple[str, ...]] = ()
    remote: bool = False
    """Whether the peer sent it; False for what this side found out, such as a lost connection."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations: dict[str, Any] = _annotations_of(cls)
        own = [
            name
            for name, kind in annotations.items()
            if name not in _RESERVED and get_origin(kind) is not ClassVar and not str(kind).startswith("ClassVar")
        ]
        cls.fields = (*cls.fields, *own)

    def __init__(self, message: str = "", *, code: int | None = None, data: Any = None, **fields: Any) -> None:
        """Make an error; `fields` are those that the class declares; `TypeError` for a missing or unknown one."""
        message = message or type(self).__name__
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if self.fields or fields:
            self._take(fields)
            data = {name: getattr(self, name) for name in self.fields} if data is None else data
        self.data = data

    def _take(self, fields: dict[str, Any]) -> None:
        for name in self.fields:
            if name in fields:
                setattr(self, name, fields.pop(name))
            elif not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__}() is missing the field {name!r}")
        if fields:
            raise TypeError(f"{type(self).__name__}() has no field {next(iter(fields))!r}")

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        data = "" if self.data is None else f", data={self.data!r}"
        return f"{type(self).__name__}({self.message!r}, code={self.code}{data})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own way would call the class with `args` alone and lose code and data between processes.
        return _rebuild, (type(self), self.message, self.code, self.data, dict(self.__dict__))


if sys.version_info >= (3, 14):  # made late from there on, and may name what is not defined yet
    import annotationlib

    _annotations_of = partial(annotationlib.get_annotations, format=annotationlib.Format.FORWARDREF)
else:
    _annotations_of = inspect.get_annotations


_RESERVED = {"code", "message", "data", "fields", "http_status", "grpc_status"}


def _rebuild(cls: type[RPCError], message: str, code: int, data: Any, state: dict[str, Any]) -> RPCError:
    error = cls.__new__(cls, message)
    Exception.__init__(error, message)
    error.__dict__.update(state, message=message, code=code, data=data)
    return error


class ParseError(RPCError):
    """The message is not what its protocol or codec can read."""

    code = -32700
    http_status = 400
    grpc_status = "INVALID_ARGUMENT"


class InvalidRequest(RPCError):
    """The message can be read but is not a request."""

    code = -32600
    http_status = 400
    grpc_status = "INVALID_ARGUMENT"


class MethodNotFound(RPCError):
    """No procedure has this name."""

    code = -32601
    http_status = 404
    grpc_status = "UNIMPLEMENTED"


class InvalidParams(RPCError):
    """The parameters do not fit the signature; `data["errors"]` lists every place that does not."""

    code = -32602
    http_status = 422
    grpc_status = "INVALID_ARGUMENT"


class InternalError(RPCError):
    """The procedure failed; the traceback is in the server's log, never here."""

    code = -32603
    http_status = 500
    grpc_status = "INTERNAL"


class Cancelled(RPCError):
    """The call was cancelled before it finished."""

    code = -32001
    http_status = 499
    grpc_status = "CANCELLED"


class DeadlineExceeded(RPCError):
    """The call's time was over before it finished."""

    code = -32002
    http_status = 504
    grpc_status = "DEADLINE_EXCEEDED"


class Unavailable(RPCError):
    """No connection, the connection was lost, or the server is going away."""

    code = -32003
    http_status = 503
    grpc_status = "UNAVAILABLE"


class ResourceExhausted(RPCError):
    """A limit was reached: the size of a message, calls in flight, items of a batch."""

    code = -32004
    http_status = 429
    grpc_status = "RESOURCE_EXHAUSTED"


class Unauthenticated(RPCError):
    """Who calls is not known."""

    code = -32005
    http_status = 401
    grpc_status = "UNAUTHENTICATED"


class PermissionDenied(RPCError):
    """Who calls is known and may not."""

    code = -32006
    http_status = 403
    grpc_status = "PERMISSION_DENIED"


class NotFound(RPCError):
    """The thing asked for does not exist."""

    code = -32007
    http_status = 404
    grpc_status = "NOT_FOUND"


class AlreadyExists(RPCError):
    """The thing to be made exists."""

    code = -32008
    http_status = 409
    grpc_status = "ALREADY_EXISTS"


class FailedPrecondition(RPCError):
    """The system is not in the state that the call needs."""

    code = -32009
    http_status = 412
    grpc_status = "FAILED_PRECONDITION"


class Aborted(RPCError):
    """The call lost a race with another one; it may be tried again."""

    code = -32010
    http_status = 409
    grpc_status = "ABORTED"


class Unimplemented(RPCError):
    """The procedure exists but does not do this here."""

    code = -32011
    http_status = 501
    grpc_status = "UNIMPLEMENTED"


BY_CODE: Final[dict[int, type[RPCError]]] = {
    error.code: error
    for error in (
        ParseError,
        InvalidRequest,
        MethodNotFound,
        InvalidParams,
        InternalError,
        Cancelled,
        DeadlineExceeded,
        Unavailable,
        ResourceExhausted,
        Unauthenticated,
        PermissionDenied,
        NotFound,
        AlreadyExists,
        FailedPrecondition,
        Aborted,
        Unimplemented,
    )
}
"""The class for each code of the closed set; any other code on the wire becomes a plain `RPCError`."""


MAX_PLAIN_MESSAGE: Final = 1000


class ErrorBody(msgspec.Struct, omit_defaults=True):
    """How an error travels, on every protocol: `code`, `message`, and `data` when there is some."""

    code: int
    message: str
    data: Any = None

    @classmethod
    def of(cls, error: RPCError) -> ErrorBody:
        """Make the travelling form of `error`."""
        return cls(error.code, error.message, error.data)

    @classmethod
    def plain(cls, error: RPCError) -> ErrorBody:
        """Make a form that every codec can carry, for an error that cannot travel whole: no data, a short text."""
        code = error.code if type(error.code) is int and -(2**63) <= error.code < 2**63 else InternalError.code
        # A text with a surrogate, such as the name of a file that is not UTF-8, is none that can be encoded.
        return cls(code, str(error.message)[:MAX_PLAIN_MESSAGE].encode(errors="replace").decode())

    def to_error(self) -> RPCError:
        """Make the exception again, of the class that the code names."""
        error = BY_CODE.get(self.code, RPCError)(self.message, code=self.code, data=self.data)
        error.remote = True
        return error
