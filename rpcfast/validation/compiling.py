"""From a declared type to the plan that checks it, made once for each type.

Duty: read `msgspec.inspect`'s description of a type and build the checks for it. Prohibition: looks at no values.
"""

import datetime  # noqa: ICN001 - beside decimal and uuid, by its own name
import decimal
import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Union

import msgspec
from msgspec import inspect

from rpcfast.validation import wording
from rpcfast.validation.checks import Class, Entries, Items, Leaf, Object, OneOf, Plan, Record, Tagged

_SCALARS: Final[dict[type, Any]] = {
    inspect.NoneType: None,
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BytesType: bytes,
    inspect.ByteArrayType: bytearray,
    inspect.MemoryViewType: memoryview,
    inspect.DateTimeType: datetime.datetime,
    inspect.DateType: datetime.date,
    inspect.TimeType: datetime.time,
    inspect.TimeDeltaType: datetime.timedelta,
    inspect.UUIDType: uuid.UUID,
    inspect.DecimalType: decimal.Decimal,
    inspect.ExtType: msgspec.msgpack.Ext,
}
_COLLECTIONS: Final[dict[type, Any]] = {
    inspect.ListType: list,
    inspect.SetType: set,
    inspect.FrozenSetType: frozenset,
    inspect.VarTupleType: list,  # reads the same values
}
_LIMITS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_OWN_CODE: Final = ("__post_init__", "__attrs_attrs__")


@lru_cache(maxsize=4096)
def _cached_plan(kind: Any) -> Plan:
    node = inspect.type_info(kind)
    # A custom type at the top keeps its arguments, which msgspec.inspect drops: its hook may read them.
    return Leaf(kind) if isinstance(node, inspect.CustomType) else _Compiler().plan(node)


def plan_of(kind: Any) -> Plan:
    """Make, once for each type, what checks it; a type that msgspec reads but cannot describe is judged whole."""
    try:
        return _cached_plan(kind)
    except TypeError:
        return Leaf(kind)


def _spell(node: inspect.Type) -> Any:  # noqa: PLR0911 - one line a shape
    """Write a described type as Python again, so that msgspec can judge values of it."""
    match node:
        case inspect.Metadata():
            return _spell(node.type)
        case inspect.LiteralType():
            return Literal[node.values]
        case inspect.UnionType():
            return Union[tuple(map(_spell, node.types))]  # noqa: UP007 - of a computed tuple
        case inspect.TupleType():
            return tuple[tuple(map(_spell, node.item_types))]  # type: ignore[misc]
        case inspect.DictType():
            return _constrained(dict[_spell(node.key_type), _spell(node.value_type)], node)  # type: ignore[misc]
        case inspect.CollectionType():
            return _constrained(_COLLECTIONS[type(node)][_spell(node.item_type)], node)
        case _:
            return _constrained(_SCALARS[type(node)], node) if type(node) in _SCALARS else getattr(node, "cls", Any)


def _constrained(kind: Any, node: inspect.Type) -> Any:
    limits = {name: limit for name in _LIMITS if (limit := getattr(node, name, None)) is not None}
    return Annotated[kind, msgspec.Meta(**limits)] if limits else kind


def _bare(node: Any) -> Any:
    return _bare(node.type) if isinstance(node, inspect.Metadata) else node


def _is_array(node: inspect.Type) -> bool:
    return isinstance(node, (inspect.CollectionType, inspect.TupleType, inspect.NamedTupleType)) or (
        isinstance(node, inspect.StructType) and node.array_like
    )


def _is_object(node: inspect.Type) -> bool:
    kinds = (inspect.DictType, inspect.TypedDictType, inspect.DataclassType, inspect.StructType)
    return isinstance(node, kinds) and not _is_array(node)


def _reworded(nodes: Sequence[Any]) -> dict[str, tuple[str, str]]:
    """Find what these types can say better than msgspec: the values allowed, exclusive bounds as they were declared."""
    words: dict[str, tuple[str, str]] = {}
    kind = ""
    values: list[Any] = []
    for node in nodes:
        match node:
            case inspect.IntType():
                words |= {} if node.gt is None else {"greater_than_equal": wording.bound(">", node.gt)}
                words |= {} if node.lt is None else {"less_than_equal": wording.bound("<", node.lt)}
            case inspect.LiteralType():
                kind, values = "literal_error", [*values, *node.values]
            case inspect.EnumType():
                kind, values = "enum", [*values, *(member.value for member in node.cls)]
            case inspect.NoneType():
                values.append(None)
            case _:
                pass
    if kind:
        causes = ("enum", "string_type", "int_type", "none_required", "union_error")
        words |= dict.fromkeys(causes[: len(causes) if len(nodes) == 1 else 1], (kind, wording.choice(values)))
    return words


class _Compiler:
    """Plans of one described type; a class that contains itself becomes a plan that contains itself."""

    def __init__(self) -> None:
        self.classes: dict[int, Class] = {}

    def plan(self, node: Any) -> Plan:
        node = _bare(node)
        match node:
            case inspect.UnionType():
                return self.union(node)
            case inspect.CollectionType():
                items: Any = list[_spell(node.item_type)]  # type: ignore[misc]
                low, high = node.min_length, node.max_length
                return Items(_spell(node), item=self.plan(node.item_type), items_type=items, low=low, high=high)
            case inspect.DictType():
                return self.mapping(node)
            case inspect.TupleType():
                size = len(node.item_types)
                return Record(_spell(node), items=[self.plan(item) for item in node.item_types], low=size, high=size)
            case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType() | inspect.NamedTupleType():
                return self.classes.get(id(node)) or (self.record(node) if _is_array(node) else self.object(node))
            case _:
                return Leaf(_spell(node), _reworded([node]))

    def union(self, node: inspect.UnionType) -> Plan:
        members = [_bare(member) for member in node.types]
        objects = self.choose([member for member in members if _is_object(member)])
        arrays = self.choose([member for member in members if _is_array(member)])
        return OneOf(_spell(node), _reworded(members), objects=objects, arrays=arrays)

    def choose(self, nodes: Sequence[Any]) -> Plan | None:
        if len(nodes) > 1:  # msgspec allows several in one union only if they are Structs told apart by their tags
            label = 0 if nodes[0].array_like else nodes[0].tag_field
            return Tagged(label, {node.tag: self.plan(node) for node in nodes})
        return self.plan(nodes[0]) if nodes else None

    def mapping(self, node: inspect.DictType) -> Plan:
        key: Any = dict[_spell(node.key_type), Any]  # type: ignore[misc]
        items: Any = dict[_spell(node.key_type), _spell(node.value_type)]  # type: ignore[misc]
        return Entries(
            _spell(node),
            key=Leaf(key, _reworded([_bare(node.key_type)])),
            item=self.plan(node.value_type),
            items_type=items,
            low=node.min_length,
            high=node.max_length,
        )

    def record(self, node: Any) -> Plan:
        tag = getattr(node, "tag", None)
        first, own_code = int(tag is not None), _has_own_code(node.cls)
        needed = [position for position, field in enumerate(node.fields, first + 1) if field.required]
        high = first + len(node.fields) if getattr(node, "forbid_unknown_fields", True) else None
        plan = Record(node.cls, tag=tag, own_code=own_code, items=[], low=max(needed, default=first), high=high)
        self.classes[id(node)] = plan
        plan.items.extend(self.plan(field.type) for field in node.fields)
        return plan

    def object(self, node: Any) -> Plan:
        plan = Object(
            node.cls,
            tag=getattr(node, "tag", None),
            own_code=_has_own_code(node.cls),
            fields={},
            tag_field=getattr(node, "tag_field", None),
            closed=getattr(node, "forbid_unknown_fields", False),
        )
        self.classes[id(node)] = plan
        plan.fields.update({field.encode_name: (self.plan(field.type), field.required) for field in node.fields})
        return plan


def _has_own_code(cls: Any) -> bool:
    return any(hasattr(getattr(cls, "__origin__", cls), name) for name in _OWN_CODE)
