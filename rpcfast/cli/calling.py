"""`rpcfast call`: what was typed becomes one call, its result a line of JSON, its error a line with the code first.

Calls travel as JSON, so that a value means what it means in JSON: a date is a text, bytes are base64.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rpcfast.cli.failure import NO_CONNECTION, REMOTE, Failure
from rpcfast.client import Client
from rpcfast.codegen.openrpc import Document
from rpcfast.errors import RPCError, Unavailable

__all__ = ["Caller", "call", "read_metadata", "read_params"]


class Caller(Client):
    """A client for names and parameters that a person typed: none of them can be mistaken for an option of `call`."""

    def __init__(self, url: str) -> None:
        try:
            super().__init__(url, codec="json")
        except ValueError as error:
            raise Failure(f"error: {error}") from None

    def perform(self, method: str, params: Any, options: Sequence[Any], kind: Any) -> Any:
        """Call `method`; `options` are the timeout and the metadata. Raises `Failure` for all that can go wrong."""
        try:
            return self._perform(method.encode(), self._encode(params), self._decoder(kind), *options)
        except RPCError as error:
            if isinstance(error, Unavailable) and not error.remote:
                raise Failure(f"error: {error}", NO_CONNECTION) from None
            raise Failure(failure_text(error), REMOTE) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise Failure(f"error: this cannot be sent: {error}") from None


def call(
    url: str,
    method: str,
    values: Sequence[str],
    *,
    json: str | None,
    metadata: Sequence[str],
    timeout: float | None,
    raw: bool,
) -> None:
    """Make the call and print its result; raises `Failure`."""
    options = (msgspec.UNSET if timeout is None else timeout, read_metadata(metadata))
    params = read_params(values, json)
    with Caller(url) as caller:
        result = bytes(caller.perform(method, params, options, msgspec.Raw))
        out = result + b"\n"
        if raw and result[:1] == b'"':
            text = msgspec.json.decode(result, type=str)
            out = base64.b64decode(text) if _gives_bytes(caller, method) else text.encode()
    sys.stdout.buffer.write(out)


def _gives_bytes(caller: Caller, method: str) -> bool:
    """Whether the service says that a result of this procedure, a text in JSON, stands for bytes."""
    document = caller.perform("rpc.discover", (), (), Document)
    found = next((m.result for m in document.methods if m.name == method), None)
    return found is not None and found.schema.get("contentEncoding") == "base64"


def read_params(values: Sequence[str], json: str | None) -> Any:
    """The parameters: `name=value` by name, bare values by position, or all as one JSON text ("-": from stdin)."""
    if json is not None:
        if values:
            raise Failure("error: --json gives all parameters; leave the others out")
        return _from_json(sys.stdin.buffer.read() if json == "-" else json)
    named = {name: read_value(text) for name, equals, text in map(_split, values) if equals}
    bare = [read_value(value) for value in values if not _split(value)[1]]
    if named and bare:
        raise Failure("error: give all parameters as name=value, or all as bare values, not both")
    if len(named) + len(bare) < len(values):
        raise Failure("error: a parameter is given twice")
    return named or tuple(bare)


def _from_json(text: str | bytes) -> Any:
    try:
        params = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise Failure(f"error: --json: {error}") from None
    if not isinstance(params, list | dict):
        raise Failure('error: --json takes an object of parameters by name, {"a": 2}, or a list by position, [2]')
    return params  # pyright: ignore[reportUnknownVariableType]  # JSON


def _split(text: str) -> tuple[str, str, str]:
    """`name=value` in three parts. What is no identifier before the `=` is no name: an address, a text in quotes."""
    name, equals, value = text.partition("=")
    return (name, equals, value) if name.isidentifier() else (text, "", "")


def read_value(text: str) -> Any:
    """A value as JSON where it is JSON, as text otherwise."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text


def read_metadata(pairs: Sequence[str]) -> Mapping[str, str] | None:
    """Metadata of `key=value` texts; raises `Failure`."""
    metadata: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise Failure(f"error: --metadata takes key=value, not {pair!r}")
        metadata[key] = value
    return metadata or None


def failure_text(error: RPCError) -> str:
    """`code message`; below it each entry of `data.errors` on its own line, or the data as JSON."""
    lines = [f"{error.code} {error.message}"]
    data: Any = error.data
    if isinstance(data, dict) and isinstance(data.get("errors"), list):  # pyright: ignore[reportUnknownMemberType]
        lines += [_entry(entry) for entry in data["errors"]]  # pyright: ignore[reportUnknownVariableType]
    elif data is not None:
        lines.append(f"  {msgspec.json.encode(data).decode()}")
    return "\n".join(lines)


def _entry(entry: Any) -> str:
    if isinstance(entry, dict) and {"path", "message"} <= entry.keys():
        return f"  {entry['path']}: {entry['message']}"
    return f"  {msgspec.json.encode(entry).decode()}"
