"""A typed signature becomes a `ProcedureSpec`; floor 1.

The spec is the one description that validation, documents and generators read.

Also the registry of types that msgspec does not know by itself: pydantic models and those of `register_type`. Nothing
here calls a procedure or reads a byte.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, cast, get_args

import msgspec

from rpcfast import integers

__all__ = ["ParameterSpec", "ProcedureSpec", "describe", "register_type"]


class TypeAdapter(NamedTuple):
    """How one class travels: to and from builtins, and its JSON Schema."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    schema: Mapping[str, Any]


_uint64: Any = integers.UInt64  # a class at run time, an annotation to type checkers
_adapters: dict[type, TypeAdapter] = {
    _uint64: TypeAdapter(int, _uint64.check, {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}),
}


def register_type(
    cls: type,
    *,
    encode: Callable[[Any], Any],
    decode: Callable[[Any], Any],
    schema: Mapping[str, Any] | None = None,
) -> None:
    """Teach rpcfast a class, for parameters, results and fields of both sides.

    `encode(value)` gives builtins (what a codec takes: numbers, text, bytes, lists, dicts); `decode(builtins)` makes
    the value again and raises `ValueError` or `TypeError` with a text for the caller when it cannot. `schema` is its
    JSON Schema for the documents (default: anything). Call it before the procedures that use the class are
    defined. Raises `ValueError` when the class is registered already. Not thread-safe: call it while modules load.
    """
    if cls in _adapters:
        raise ValueError(f"{cls.__qualname__} is registered already")
    _adapters[cls] = TypeAdapter(encode, decode, dict(schema or {}))


def is_pydantic(cls: Any) -> bool:
    """Whether `cls` is a pydantic model, found out without importing pydantic."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__")


def _adapter_of(cls: type) -> TypeAdapter | None:
    return next((_adapters[base] for base in cls.__mro__ if base in _adapters), None)


def decode_custom(cls: type, value: Any) -> Any:
    """The `dec_hook` of every codec: builtins to a custom class. Its `ValueError` becomes an error with its place."""
    adapter = _adapter_of(cls)
    if adapter is not None:
        return adapter.decode(value)
    if is_pydantic(cls):
        return cls.model_validate(value)  # type: ignore[attr-defined]  # a pydantic model, see is_pydantic
    raise TypeError(f"{cls.__qualname__} is not a type that rpcfast knows; see rpcfast.register_type")


def encode_custom(value: Any) -> Any:
    """The `enc_hook` of every binary codec: a custom value to builtins."""
    cls = cast("Any", type(value))
    adapter = _adapter_of(cls)
    if adapter is not None:
        return adapter.encode(value)
    if is_pydantic(cls):
        return value.__pydantic_serializer__.to_python(value)
    raise TypeError(f"a value of type {cls.__qualname__} cannot be sent; see rpcfast.register_type")


def encode_custom_json(value: Any) -> Any:
    """The `enc_hook` of the JSON codec: pydantic writes JSON itself, which skips one tree of builtins."""
    if is_pydantic(type(value)):
        return msgspec.Raw(value.__pydantic_serializer__.to_json(value))
    return encode_custom(value)


def custom_schema(cls: type) -> dict[str, Any]:
    """The `schema_hook` of the documents: JSON Schema of a custom class."""
    if is_pydantic(cls):
        return cls.model_json_schema()  # type: ignore[attr-defined,no-any-return]  # see is_pydantic
    adapter = _adapter_of(cls)
    return dict(adapter.schema) if adapter else {}


class ParameterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a procedure: `type` as annotated, `default` is `msgspec.NODEFAULT` when it must be given."""

    name: str
    type: Any
    default: Any = msgspec.NODEFAULT
    keyword_only: bool = False

    @property
    def required(self) -> bool:
        """Whether a caller must give it."""
        return self.default is msgspec.NODEFAULT


@dataclass(frozen=True, kw_only=True)
class ProcedureSpec:
    """What a caller may know of a procedure, and how it wants to be run.

    `timeout` in seconds; `injected` names the parameter that gets the `Context`, if there is one, and `injected_at` is
    its place among the positional ones, None when it is keyword-only.
    """

    name: str
    function: Callable[..., Any]
    parameters: tuple[ParameterSpec, ...]
    result: Any
    doc: str = ""
    injected: str | None = None
    injected_at: int | None = None
    readonly: bool = False
    thread: bool = False
    timeout: float | None = None
    max_concurrency: int | None = None
    tags: tuple[str, ...] = ()
    deprecated: bool = False

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(
            getattr(self.function, "__call__", None)  # noqa: B004  # the bound method is asked, not callable()
        )

    @cached_property
    def plain(self) -> bool:
        """Whether a call by position is exactly one tuple: nothing has a default, nothing is keyword-only."""
        return all(p.required and not p.keyword_only for p in self.parameters)

    @cached_property
    def by_name(self) -> type[msgspec.Struct]:
        """The Struct of a call by name; unknown names are refused."""
        return _struct(self.name, self.parameters)

    @cached_property
    def positional(self) -> type[msgspec.Struct]:
        """The array-like Struct of a call by position when some have defaults; surplus items are refused."""
        return _struct(self.name, [p for p in self.parameters if not p.keyword_only], array_like=True)

    @cached_property
    def params(self) -> Any:
        """The type that a codec decodes parameters to: by name or by position."""
        if self.plain:
            return self.by_name | tuple[tuple(p.type for p in self.parameters)]  # type: ignore[misc]  # made at run time
        return self.by_name | tuple[Any, ...]


def _struct(name: str, parameters: Any, *, array_like: bool = False) -> type[msgspec.Struct]:
    """Make the Struct of some parameters. A default is shared, as Python itself shares it between calls."""
    fields: list[Any] = [
        (p.name, p.type)
        if p.required
        else (p.name, p.type, msgspec.field(default_factory=partial(getattr, p, "default")))
        for p in parameters
    ]
    return msgspec.defstruct(
        f"{name} parameters",
        fields,
        array_like=array_like,
        kw_only=not array_like,
        forbid_unknown_fields=True,
        gc=False,
    )


_VARIADIC: Final = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def describe(
    function: Callable[..., Any], *, name: str | None = None, inject: type | None = None, **options: Any
) -> ProcedureSpec:
    """Describe a typed function as a procedure; `options` are the fields of `ProcedureSpec`.

    `inject` is the class whose parameter is filled by the server and never travels. Raises `TypeError` or `ValueError`
    that names function, parameter and reason when the signature cannot be served.
    """
    label = getattr(function, "__qualname__", repr(function))
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{label}(): a function that yields cannot be served; return a list instead")
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, AttributeError, SyntaxError) as error:
        raise TypeError(f"{label}(): an annotation cannot be resolved: {error}; define it at module level") from error
    parameters: list[ParameterSpec] = []
    injected: str | None = None
    injected_at: int | None = None
    for parameter in signature.parameters.values():
        if inject is not None and parameter.annotation is inject:
            injected = parameter.name
            injected_at = None if parameter.kind is parameter.KEYWORD_ONLY else len(parameters)
        else:
            parameters.append(_parameter(label, parameter))
    result = Any if signature.return_annotation is signature.empty else signature.return_annotation
    _check_type(f"{label}(): the result", result)
    spec = ProcedureSpec(
        name=name_of(label, function, name),
        function=function,
        parameters=tuple(parameters),
        result=result,
        doc=inspect.getdoc(function) or "",
        injected=injected,
        injected_at=injected_at,
        **options,
    )
    _check_options(label, spec)
    return spec


def name_of(label: str, function: Callable[..., Any], name: str | None) -> str:
    """The name to serve a function by, its own if `name` is None; raises `ValueError`, which opens with `label`."""
    name = name if name is not None else getattr(function, "__name__", "")
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"{label}(): the name {name!r} must be identifiers joined by dots, such as 'users.get'")
    if name.startswith("rpc."):
        raise ValueError(f"{label}(): the name {name!r} is reserved: names that begin with 'rpc.' belong to JSON-RPC")
    if len(name.encode()) > MAX_NAME:
        raise ValueError(f"{label}(): the name is longer than {MAX_NAME} bytes")
    return name


MAX_NAME: Final = 255
"""Longest name of a procedure, in bytes of UTF-8."""


def _parameter(label: str, parameter: inspect.Parameter) -> ParameterSpec:
    if parameter.kind in _VARIADIC:
        stars = _VARIADIC[parameter.kind]
        raise TypeError(
            f"{label}(): {stars}{parameter.name} cannot be served; name each parameter, or take a list or dict"
        )
    kind = Any if parameter.annotation is parameter.empty else parameter.annotation
    _check_type(f"{label}(): parameter {parameter.name!r}", kind)
    return ParameterSpec(
        name=parameter.name,
        type=kind,
        default=msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default,
        keyword_only=parameter.kind is parameter.KEYWORD_ONLY,
    )


def _check_options(label: str, spec: ProcedureSpec) -> None:
    if spec.thread and spec.is_async:
        raise TypeError(f"{label}(): thread=True is for plain functions; an async def already runs beside others")
    if spec.timeout is not None and spec.timeout <= 0:
        raise ValueError(f"{label}(): timeout must be more than 0 seconds, not {spec.timeout!r}")
    if spec.max_concurrency is not None and spec.max_concurrency < 1:
        raise ValueError(f"{label}(): max_concurrency must be at least 1, not {spec.max_concurrency!r}")


def _check_type(where: str, kind: Any) -> None:
    try:
        node = msgspec.inspect.type_info(kind)
    except (TypeError, ValueError, NameError) as error:
        raise TypeError(f"{where} has a type that cannot be served: {error}") from error
    for custom in custom_types(node):
        if _adapter_of(custom) is None and not is_pydantic(custom):
            raise TypeError(
                f"{where} has the type {custom.__qualname__}, which cannot be served; register it with "
                "rpcfast.register_type, or use a dataclass or msgspec.Struct"
            )


def walk(node: Any) -> list[Any]:
    """Every node of a msgspec type tree, each once; recursive types end."""
    seen: dict[int, Any] = {}
    stack = [node]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        if isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field):
            seen[id(node)] = node
            stack.extend(getattr(node, field) for field in node.__struct_fields__)
        elif isinstance(node, tuple | list):
            stack.extend(cast("list[Any]", node))
    return list(seen.values())


def custom_types(node: Any) -> list[type]:
    """The classes below `node` that msgspec leaves to the registry."""
    return [n.cls for n in walk(node) if isinstance(n, msgspec.inspect.CustomType)]


def is_open(kind: Any) -> bool:
    """Whether values of this type may nest without bound: `Any`, bare containers, recursive and custom types."""
    node = msgspec.inspect.type_info(kind)
    nodes = walk(node)
    if any(
        isinstance(n, msgspec.inspect.AnyType | msgspec.inspect.CustomType | msgspec.inspect.RawType) for n in nodes
    ):
        return True
    return _recursive(node, ())


def _recursive(node: Any, above: tuple[int, ...]) -> bool:
    if isinstance(node, tuple | list):
        return any(_recursive(item, above) for item in cast("list[Any]", node))
    if not isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field):
        return False
    if id(node) in above:
        return True
    return any(_recursive(getattr(node, field), (*above, id(node))) for field in node.__struct_fields__)


def type_name(kind: Any) -> str:
    """A type as a person writes it, for tables and messages."""
    if kind is Any:
        return "Any"
    args = get_args(kind)
    if hasattr(kind, "__metadata__"):
        return type_name(args[0])
    if isinstance(kind, type) and not args:
        return "None" if kind is type(None) else kind.__name__
    return str(kind).replace("typing.", "").replace("NoneType", "None")
