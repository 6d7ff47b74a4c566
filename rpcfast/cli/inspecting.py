"""`rpcfast inspect`: the OpenRPC document of a target or of a running server, as a table for people or as it is."""

from __future__ import annotations

import re
import sys
from typing import Any, Literal, TypeGuard

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rpcfast.cli.calling import Caller
from rpcfast.cli.loading import load_server
from rpcfast.codegen.openrpc import Document, Method, Parameter, Schema, make_document

__all__ = ["inspect", "type_text"]


def inspect(source: str, style: Literal["table", "json"]) -> None:
    """Print what `source`, a TARGET or a URL, serves; raises `Failure`."""
    document = _fetch(source) if _is_url(source) else _make(source)
    if style == "json":
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    console = Console()
    if console.is_terminal:
        console.print(make_table(document))
    else:
        sys.stdout.write(make_lines(document))


def _is_url(source: str) -> bool:
    return "://" in source or source.startswith("exec:") or re.search(r":\d+$", source) is not None


def _fetch(url: str) -> Document:
    with Caller(url) as caller:
        document: Document = caller.perform("rpc.discover", (), (), Document)
    return document


def _make(target: str) -> Document:
    server = load_server(target)
    return make_document(server.name, server.version, server.procedures.values())


# ---- for people


def make_table(document: Document) -> Table:
    """A table for a terminal: a row a procedure, its parameters one below the other."""
    info = document.info
    table = Table(
        title=f"{escape(info.title)} [dim]version {escape(info.version)}", title_justify="left", title_style="bold"
    )
    table.add_column("Procedure", style="bold cyan", no_wrap=True)
    table.add_column("Parameters")
    table.add_column("Result", style="green")
    table.add_column("Description", ratio=1)
    for method in document.methods:
        parameters = "\n".join(
            f"{escape(p.name)}: [green]{escape(type_text(p.schema))}[/]{escape(_default(p))}" for p in method.params
        )
        flags = "".join(f" [yellow]{escape(flag)}[/]" for flag in _flags(method))
        table.add_row(method.name, parameters, escape(_result(method)), f"{escape(method.summary)}{flags}".strip())
    return table


def make_lines(document: Document) -> str:
    """Plain text for pipes: a line a procedure, as a signature, then flags in brackets, then what it does."""
    return "".join(f"{_line(method)}\n" for method in document.methods)


def _line(method: Method) -> str:
    parameters = ", ".join(f"{p.name}: {type_text(p.schema)}{_default(p)}" for p in method.params)
    flags = "".join(f"  [{flag}]" for flag in _flags(method))
    summary = f"  # {method.summary}" if method.summary else ""
    return f"{method.name}({parameters}) -> {_result(method)}{flags}{summary}"


def _result(method: Method) -> str:
    return type_text(method.result.schema) if method.result is not None else "Any"


def _default(parameter: Parameter) -> str:
    if parameter.required:
        return ""
    return (
        f" = {msgspec.json.encode(parameter.schema['default']).decode()}" if "default" in parameter.schema else " = …"
    )


def _flags(method: Method) -> list[str]:
    flags = [flag for flag, on in (("readonly", method.readonly), ("deprecated", method.deprecated)) if on]
    return [*flags, *(f"#{tag.name}" for tag in method.tags)]


# ---- JSON Schema as Python types

_SIMPLE = {"boolean": "bool", "integer": "int", "number": "float", "null": "None", "string": "str"}
_FORMATS = {
    "date": "date",
    "date-time": "datetime",
    "decimal": "Decimal",
    "duration": "timedelta",
    "time": "time",
    "uuid": "UUID",
}
_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def type_text(schema: Schema) -> str:
    """A JSON Schema as the Python type that a reader knows: `list[int] | None`, `int >=0`, a class by its name."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(type_text(arm) for arm in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(msgspec.json.encode(value).decode() for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return _array(schema)
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"dict[str, {type_text(values)}]" if _is_schema(values) else str(schema.get("title", "dict"))
    return _simple(schema, kind)


def _array(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"tuple[{', '.join(type_text(item) for item in schema['prefixItems'])}]"
    items = schema.get("items")
    return f"list[{type_text(items)}]" if _is_schema(items) else "list"


def _is_schema(node: object) -> TypeGuard[Schema]:
    """JSON Schema allows true and false where a schema may stand."""
    return isinstance(node, dict)


def _simple(schema: Schema, kind: Any) -> str:
    if schema.get("contentEncoding") == "base64":
        return "bytes"
    name = _FORMATS.get(schema.get("format", ""), _SIMPLE.get(str(kind), str(schema.get("title", "Any"))))
    bounds = "".join(f" {sign}{schema[word]}" for word, sign in _BOUNDS.items() if word in schema)
    return name + bounds
