"""What a server serves: the registry behind `@server`, namespaces, tables for each protocol; floor 3: no I/O."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar, overload
from weakref import WeakSet

from rpcfast.call import Context
from rpcfast.codecs import MAX_NESTING, Codec, bounded, decode_any, get_codec, nesting_of
from rpcfast.codegen.openrpc import Document, make_document
from rpcfast.errors import DECODE_ERRORS, ErrorBody, ParseError, RPCError, Unimplemented
from rpcfast.handlers import Gates, Handler, Threads, Wire, compile_handler, refusal
from rpcfast.limits import Limits
from rpcfast.schema import ProcedureSpec, describe, is_open, name_of
from rpcfast.wire import jsonrpc, native

__all__ = ["Binding", "Namespace", "Registry", "Runtime"]

F = TypeVar("F", bound=Callable[..., Any])


class Registry:
    """Procedures by name, and the decorator that adds them. What `Server` and `Namespace` share.

    `name` and `version` are what its documents call the service.
    """

    name = "rpcfast"
    version = "0"

    def __init__(self) -> None:
        self.procedures: dict[str, ProcedureSpec] = {}
        self._runtimes: WeakSet[Runtime] = WeakSet()

    @overload
    def __call__(self, function: F, /) -> F: ...

    @overload
    def __call__(
        self,
        /,
        *,
        name: str | None = None,
        readonly: bool = False,
        thread: bool = False,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        tags: Iterable[str] = (),
        deprecated: bool = False,
    ) -> Callable[[F], F]: ...

    def __call__(self, function: Any = None, /, **options: Any) -> Any:
        """Serve a typed function: `@server`, or `@server(...)` with options. The function itself comes back unchanged.

        Options: `name` (default: the function's), `readonly` (it has no side effects), `thread` (run in a pool: for
        functions that block), `timeout` (seconds, answered with `DeadlineExceeded`), `max_concurrency` (how many run
        at once; more wait; async and thread only), `tags`, `deprecated` (for documents).

        Raises `TypeError` or `ValueError` that names function, parameter and reason when it cannot be served.
        """
        if function is None:
            return partial(self._register, options=options)
        if isinstance(function, str):
            raise TypeError(f"@server({function!r}) takes options by name: @server(name={function!r})")
        return self._register(function, options)

    def _register(self, function: F, options: dict[str, Any]) -> F:
        if not callable(function):
            raise TypeError(f"{function!r} is not a function; to serve an object's methods, use include()")
        tags: Any = options.get("tags", ())
        if isinstance(tags, str):
            raise TypeError(f"tags={tags!r} must be a list of texts: tags=[{tags!r}]")
        merged: dict[str, Any] = {**options, "tags": tuple(tags)}
        self.add(describe(function, inject=Context, **merged))
        return function

    def add(self, spec: ProcedureSpec) -> None:
        """Add a described procedure; raises `ValueError` when its name is taken."""
        if spec.name in self.procedures:
            taken = self.procedures[spec.name].function
            raise ValueError(
                f"{spec.function.__qualname__}(): the name {spec.name!r} is taken by {taken.__qualname__}() "
                f"of {taken.__module__}; give it another by name=…"
            )
        self.procedures[spec.name] = spec
        for runtime in self._runtimes:
            runtime.add(spec)

    def include(self, other: object, *, prefix: str | None = None) -> None:
        """Serve the procedures of a `Namespace`, or the public methods of an object, as `prefix.name`.

        For an object, `prefix` is needed; methods are those of its class whose names do not begin with `_`. Raises as
        `@server` does, before anything was added.
        """
        found = list(_procedures_of(other, prefix))
        for spec in found:
            if spec.name in self.procedures:
                raise ValueError(f"include({other!r}): the name {spec.name!r} is taken")
        for spec in found:
            self.add(spec)


def _procedures_of(other: object, prefix: str | None) -> Iterator[ProcedureSpec]:
    if isinstance(other, Registry):
        dot = f"{prefix}." if prefix else ""
        for spec in other.procedures.values():
            yield replace(spec, name=name_of(spec.function.__qualname__, spec.function, dot + spec.name))
        return
    if inspect.isclass(other):
        raise TypeError(f"include({other.__name__}): give an instance, include({other.__name__}(…), prefix=…)")
    if not prefix:
        raise ValueError(f"include({type(other).__name__} object) needs a prefix: include(…, prefix='users')")
    names = [name for name, _ in inspect.getmembers(type(other), inspect.isroutine) if not name.startswith("_")]
    if not names:
        raise ValueError(f"include({type(other).__name__} object): its class has no public methods to serve")
    for name in names:
        yield describe(getattr(other, name), name=f"{prefix}.{name}", inject=Context)


class Namespace(Registry):
    """A group of procedures: `users = Namespace("users")`, `@users` as `@server`; `server.include(users)` serves it."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        if not prefix or not all(part.isidentifier() for part in prefix.split(".")):
            raise ValueError(f"a namespace's prefix must be identifiers joined by dots, not {prefix!r}")
        self.prefix = prefix

    def __repr__(self) -> str:
        return f"Namespace({self.prefix!r})"

    def _register(self, function: F, options: dict[str, Any]) -> F:
        name = options.get("name") or getattr(function, "__name__", "")
        return super()._register(function, {**options, "name": f"{self.prefix}.{name}"})


class Binding(NamedTuple):
    """A service as one protocol and codec see it."""

    protocol: str
    handlers: dict[Any, Handler]
    names: dict[Any, str]
    """The name of the procedure behind a key, for messages."""
    answer_error: Callable[[Any, Any, RPCError], None]
    """Queue an error: `(sink, call id, error)`."""
    decode_error: Callable[[bytes], RPCError]
    explain: Callable[[Any, Any], RPCError]
    """What is wrong with `(key, parameters as builtins)`."""


class Runtime:
    """A registry being served in one event loop: limits, threads, and a binding for each protocol and codec, made once.

    Procedures that are registered while it runs join every binding. Beside them stands `rpc.discover`, which gives the
    OpenRPC document of the service.
    """

    def __init__(self, registry: Registry, limits: Limits) -> None:
        self.registry = registry
        self.limits = limits
        self.threads = Threads(limits)
        self._gates: Gates = {}
        self._document: Document | None = None
        self._discover = replace(describe(self.document, name="discover"), name="rpc.discover")
        self.contract = jsonrpc.Contract(self._specs())
        self._native: dict[str, tuple[Codec, Binding]] = {}
        self._json = Binding("jsonrpc", {}, {}, jsonrpc.answer_error, _no_answers, self._explain_json)
        for spec in self._specs():
            self._add_json(spec)
        registry._runtimes.add(self)  # noqa: SLF001  # the other half of the same page

    def _specs(self) -> Iterator[ProcedureSpec]:
        yield from self.registry.procedures.values()
        yield self._discover

    def document(self) -> Document:
        """The OpenRPC document of this service."""
        if self._document is None:
            self._document = make_document(self.registry.name, self.registry.version, self.registry.procedures.values())
        return self._document

    def close(self) -> None:
        """Let go of the threads."""
        self.threads.close()

    def add(self, spec: ProcedureSpec) -> None:
        """Let a procedure join every binding."""
        self._document = None
        self.contract.add(spec)
        self._add_json(spec)
        for codec, binding in self._native.values():
            self._add_native(codec, binding, spec)

    def native(self, codec_name: str) -> Binding:
        """The binding for native frames with a codec; raises `LookupError` for a codec that there is not."""
        if codec_name not in self._native:
            codec = get_codec(codec_name)
            binding = native_binding(codec, limits=self.limits)
            for spec in self._specs():
                self._add_native(codec, binding, spec)
            self._native[codec_name] = codec, binding
        return self._native[codec_name][1]

    def jsonrpc(self) -> Binding:
        """The binding for JSON-RPC."""
        return self._json

    def _add_native(self, codec: Codec, binding: Binding, spec: ProcedureSpec) -> None:
        key = spec.name.encode()
        binding.names[key] = spec.name
        try:
            typed, encode = bounded(codec.bind(spec.params)[1], spec.params), codec.bind(spec.result)[0]
        except TypeError as error:
            binding.handlers[key] = _refuse(f"{spec.name} cannot be called with this connection's codec: {error}")
            return
        wire = Wire(
            typed,
            partial(decode_any, codec),
            native.answer_with(encode),
            partial(native.inline_with, typed, encode),
        )
        binding.handlers[key] = compile_handler(spec, wire, self.threads, self._gates)

    def _add_json(self, spec: ProcedureSpec) -> None:
        key = self.contract.keys[spec.name]
        self._json.names[key] = spec.name
        typed = _shallow_params if is_open(spec.params) else jsonrpc.params_of
        encode = get_codec("json").bind(spec.result)[0]
        wire = Wire(
            typed,
            jsonrpc.params_of,
            jsonrpc.answer_with(encode),
            partial(jsonrpc.inline_with, typed, encode),
        )
        self._json.handlers[key] = compile_handler(spec, wire, self.threads, self._gates)

    def _explain_json(self, key: Any, value: Any) -> RPCError:
        return refusal(self.registry.procedures.get(self._json.names[key], self._discover), value)


def _shallow_params(message: Any) -> Any:
    params = message.params
    if nesting_of(params) > MAX_NESTING:
        raise ValueError(f"the parameters nest deeper than {MAX_NESTING} levels")
    return params


def _refuse(reason: str) -> Handler:
    def handle(_call_id: Any, _payload: Any, _sink: Any) -> None:
        raise Unimplemented(reason)

    return handle


def native_binding(codec: Codec, limits: Limits) -> Binding:
    """A binding for native frames without procedures: what a client has."""
    encode, decode = codec.bind(ErrorBody)
    answer_error = native.answer_error_with(encode, limits.max_message_size)
    return Binding("native", {}, {}, answer_error, partial(_to_error, decode), _bytes_explain_themselves)


def _to_error(decode: Callable[[bytes], ErrorBody], body: bytes) -> RPCError:
    try:
        return decode(body).to_error()
    except DECODE_ERRORS as error:
        return ParseError(f"the call failed, and its error cannot be read: {error}")


def _no_answers(_: bytes) -> RPCError:
    return ParseError("no calls are made over this protocol, so no answers come")


def _bytes_explain_themselves(_key: Any, _value: Any) -> RPCError:
    return ParseError("the parameters cannot be read")
