"""The OpenRPC 1.3 document of a service (https://spec.open-rpc.org); floor 2: `ProcedureSpec`s in, one `Document` out.

The Structs are the specification's objects as far as they are used here, so a document that a server sent can be read
back by them. Nothing here opens a connection or prints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from rpcfast.schema import ParameterSpec, ProcedureSpec, custom_schema, encode_custom, is_pydantic

__all__ = ["Document", "Method", "Parameter", "make_document"]

REFERENCE: Final = "#/components/schemas/{name}"

Schema = dict[str, Any]


class Parameter(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A parameter or a result (the specification's "content descriptor"); `schema` is its JSON Schema."""

    name: str
    summary: str = ""
    description: str = ""
    required: bool = False
    schema: Schema


class Tag(msgspec.Struct):
    """A tag; only its name is used."""

    name: str


class Method(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A procedure. `param_structure` is "by-name" when a call by position cannot give all that is required."""

    name: str
    summary: str = ""
    description: str = ""
    tags: list[Tag] = []
    param_structure: str = msgspec.field(default="either", name="paramStructure")
    params: list[Parameter]
    result: Parameter | None = None
    deprecated: bool = False
    readonly: bool = msgspec.field(default=False, name="x-readonly")


class Info(msgspec.Struct):
    """The service's name and version."""

    title: str
    version: str


class Components(msgspec.Struct, omit_defaults=True):
    """The types that schemas refer to, by name."""

    schemas: dict[str, Schema] = {}


class Document(msgspec.Struct, kw_only=True):
    """A service."""

    openrpc: str = "1.3.2"
    info: Info
    methods: list[Method]
    components: Components = msgspec.field(default_factory=Components)


def make_document(title: str, version: str, procedures: Iterable[ProcedureSpec]) -> Document:
    """Describe a service, its procedures in alphabetical order.

    Takes milliseconds where there are hundreds of procedures: keep the document rather than make it for each reader.
    """
    specs = sorted(procedures, key=lambda spec: spec.name)
    kinds = [kind for spec in specs for kind in (*(p.type for p in spec.parameters), spec.result)]
    schemas, components = _schemas(kinds)
    left = iter(schemas)
    methods = [_method(spec, [next(left) for _ in spec.parameters], next(left)) for spec in specs]
    return Document(info=Info(title, version), methods=methods, components=Components(components))


def _method(spec: ProcedureSpec, schemas: list[Schema], result: Schema) -> Method:
    summary, _, description = spec.doc.partition("\n")
    # A keyword-only parameter that must be given rules out every call by position.
    by_name = any(p.keyword_only and p.required for p in spec.parameters)
    return Method(
        name=spec.name,
        summary=summary.strip(),
        description=description.strip(),
        tags=[Tag(tag) for tag in spec.tags],
        param_structure="by-name" if by_name else "either",
        params=[_parameter(p, schema) for p, schema in zip(spec.parameters, schemas, strict=True)],
        result=Parameter(name="result", schema=result),
        deprecated=spec.deprecated,
        readonly=spec.readonly,
    )


def _parameter(spec: ParameterSpec, schema: Schema) -> Parameter:
    if not spec.required:
        try:
            default = msgspec.to_builtins(spec.default, str_keys=True, enc_hook=encode_custom)
        except (TypeError, ValueError):
            pass  # a default that has no JSON, such as a sentinel: the document only says that there is one
        else:
            schema = {**schema, "default": default}
    return Parameter(name=spec.name, schema=schema, required=spec.required)


def _schemas(kinds: list[Any]) -> tuple[list[Schema], dict[str, Schema]]:
    """The schema of each type, and the components that they refer to."""
    # msgspec names the components; those of pydantic models must take other names, so they are learned first.
    _, taken = msgspec.json.schema_components(kinds, schema_hook=_anything, ref_template=REFERENCE)
    hoisted: dict[str, Schema] = {}
    schemas, components = msgspec.json.schema_components(
        kinds, schema_hook=_hook(hoisted, set(taken)), ref_template=REFERENCE
    )
    return list(schemas), {**components, **hoisted}


def _anything(cls: type) -> Schema:
    """The schema of a type without one; msgspec takes no empty schema from its hook."""
    return {"title": cls.__name__}


def _hook(hoisted: dict[str, Schema], taken: set[str]) -> Callable[[type], Schema]:
    """`custom_schema`, but what a pydantic model keeps under "$defs" goes to `hoisted`, where references find it."""

    def schema_of(cls: type) -> Schema:
        schema = custom_schema(cls) or _anything(cls)
        if not is_pydantic(cls):
            return schema
        inner: dict[str, Schema] = schema.pop("$defs", {})
        names = {name: _free(name, inner[name], hoisted, taken) for name in inner}
        hoisted.update({names[name]: _renamed(inner[name], names) for name in inner})
        renamed: Schema = _renamed(schema, names)
        return renamed

    return schema_of


def _free(name: str, schema: Schema, hoisted: dict[str, Schema], taken: set[str]) -> str:
    """`name`, or `name2` and so on where another type has it."""
    number, free, same = 1, name, _renamed(schema, {})
    while free in taken or hoisted.get(free, same) != same:
        number += 1
        free = f"{name}{number}"
    return free


def _renamed(node: Any, names: dict[str, str]) -> Any:
    """A schema with its references to "$defs" turned to the components."""
    if isinstance(node, list):
        return [_renamed(item, names) for item in node]  # pyright: ignore[reportUnknownVariableType]  # JSON
    if not isinstance(node, dict):
        if isinstance(node, str) and (found := re.fullmatch(r"#/\$defs/(.+)", node)):
            return REFERENCE.format(name=names.get(found[1], found[1]))
        return node
    return {key: _renamed(value, names) for key, value in node.items()}  # pyright: ignore[reportUnknownVariableType]
