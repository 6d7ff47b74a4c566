"""Plans are made once for a type, for every type that msgspec reads."""

from typing import Annotated, Any, Generic, Literal, Optional, TypeVar

import msgspec
import pytest
from msgspec import Meta

from rpcfast.validation.checks import Entries, Items, Leaf, Object, OneOf, Record, Tagged, Walk
from rpcfast.validation.compiling import plan_of

T = TypeVar("T")


class Box(msgspec.Struct, Generic[T]):
    """A generic Struct."""

    item: T


class Tree(msgspec.Struct):
    """A type that contains itself."""

    left: Optional["Tree"] = None


class A(msgspec.Struct, tag=True):
    """A member of a tagged union."""


class B(msgspec.Struct, tag=True):
    """Another."""


class Custom(Generic[T]):
    """A type that only a hook reads."""


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        (int, Leaf),
        (Any, Leaf),
        (list[int], Items),
        (frozenset[int], Items),
        (tuple[int, ...], Items),
        (tuple[int, str], Record),
        (tuple[()], Record),
        (dict[str, int], Entries),
        (Tree, Object),
        (Tree | None, OneOf),
        (Annotated[list[int], Meta(description="documented")], Items),
    ],
    ids=str,
)
def test_each_shape_has_its_plan(kind: Any, plan: type) -> None:
    """The shape of a type decides what checks it."""
    assert type(plan_of(kind)) is plan


def test_plan_is_made_once() -> None:
    """The same type gives the same plan."""
    assert plan_of(dict[str, Tree]) is plan_of(dict[str, Tree])


def test_unhashable_type_has_a_plan() -> None:
    """A type that cannot be a key of the cache is checked all the same."""
    walk = Walk(msgspec.convert)
    plan_of(Annotated[list[int], ["unhashable"]]).check(walk, ["x", "y"])
    assert walk.errors


def test_cyclic_type_is_a_cyclic_plan() -> None:
    """A class that contains itself is compiled once."""
    plan = plan_of(Tree)
    assert isinstance(plan, Object)
    left, _ = plan.fields["left"]
    assert isinstance(left, OneOf)
    assert left.objects is plan


def test_tags_choose() -> None:
    """Classes told apart by a tag are found by it."""
    plan = plan_of(A | B)
    assert isinstance(plan, OneOf)
    assert isinstance(plan.objects, Tagged)
    assert list(plan.objects.plans) == ["A", "B"]


def test_type_arguments_survive() -> None:
    """The argument of a generic class decides; a custom type at the top keeps its own for the hook."""
    walk = Walk(msgspec.convert)
    plan_of(Box[int]).check(walk, {"item": "x"})
    assert [(error["path"], error["type"]) for error in walk.errors] == [("$.item", "int_type")]
    plan = plan_of(Custom[int])
    assert isinstance(plan, Leaf)
    assert plan.type == Custom[int]


def test_literals_name_their_values() -> None:
    """A literal is answered with what is allowed, null included where it is."""
    walk = Walk(msgspec.convert)
    plan_of(Literal["a", "b"]).check(walk, 5)
    plan_of(Literal["a"] | None).check(walk, "x")
    assert [error["message"] for error in walk.errors] == ['Expected one of "a", "b"', 'Expected one of "a", null']
