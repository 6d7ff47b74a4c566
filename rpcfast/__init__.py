"""One typed Python function, served once, callable by everyone.

Define procedures on a `Server`, call them with a `Client` or an `AsyncClient`. Names are loaded when they are first
used, so that a client does not pay for the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpcfast.call import Context, current_context
    from rpcfast.client import AsyncClient, Client
    from rpcfast.codecs import register_codec
    from rpcfast.errors import (
        Aborted,
        AlreadyExists,
        Cancelled,
        DeadlineExceeded,
        FailedPrecondition,
        InternalError,
        InvalidParams,
        InvalidRequest,
        MethodNotFound,
        NotFound,
        ParseError,
        PermissionDenied,
        ResourceExhausted,
        RPCError,
        Unauthenticated,
        Unavailable,
        Unimplemented,
    )
    from rpcfast.limits import Limits
    from rpcfast.schema import register_type
    from rpcfast.server import Server
    from rpcfast.service import Namespace

__version__ = "0.1.0"

_HOMES = {
    "call": ("Context", "current_context"),
    "client": ("AsyncClient", "Client"),
    "codecs": ("register_codec",),
    "errors": (
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
    ),
    "limits": ("Limits",),
    "schema": ("register_type",),
    "server": ("Server",),
    "service": ("Namespace",),
}
_home_of = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Aborted",
    "AlreadyExists",
    "AsyncClient",
    "Cancelled",
    "Client",
    "Context",
    "DeadlineExceeded",
    "FailedPrecondition",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "Limits",
    "MethodNotFound",
    "Namespace",
    "NotFound",
    "ParseError",
    "PermissionDenied",
    "RPCError",
    "ResourceExhausted",
    "Server",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "current_context",
    "register_codec",
    "register_type",
]


def __getattr__(name: str) -> Any:
    """PEP 562: import a public name from its module at its first use."""
    if name not in _home_of:
        raise AttributeError(f"module 'rpcfast' has no attribute {name!r}")
    value = getattr(import_module(f"rpcfast.{_home_of[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
