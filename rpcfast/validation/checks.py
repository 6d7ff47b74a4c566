"""The walk over a refused value: what checks each kind of type, and what the walk may spend.

Duty: one class for each shape that a type can have (leaf, items, entries, record, object, tagged, one of several); each
finds every error of a value of its shape. msgspec judges the leaves. Prohibitions: knows nothing of how types are
declared; every loop over the peer's data is paid for in steps, stops at the limit of errors, or runs in msgspec.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from rpcfast.validation import wording

ERROR_LIMIT: Final = 100
"""Errors listed at most; a last entry of type `too_many_errors` then says that the list was cut."""
DEPTH_LIMIT: Final = 128
"""Levels below the parameters that are looked at."""
STEP_LIMIT: Final = 20_000
"""Parts of a value that are looked at one by one; of a larger value the errors found until then are told."""
TEXT_LIMIT: Final = 65_536
"""Characters of paths and messages, after which no error is added: one long path can repeat in each of them."""
_CHUNK: Final = 256  # items of a long list that msgspec judges at once: only chunks with an error are walked
_CHUNKED_LEVELS: Final = 2  # nested lists read in chunks; each such level reads its whole content once more
_ARRAYS: Final = (list, tuple, set, frozenset)


def parts_of(value: object) -> list[Any] | None:
    """Give the parts of what a codec makes of an array; `None` for anything else."""
    array: Any = value
    return list(array) if isinstance(value, _ARRAYS) else None


def members_of(value: object) -> dict[Any, Any] | None:
    """Give the members of what a codec makes of an object; `None` for anything else."""
    members: Any = value
    return members if isinstance(value, dict) else None


class Stop(Exception):
    """The list is full, or the value too large to go on."""


class Plan(Protocol):
    """What checks the values of one type."""

    def check(self, walk: "Walk", value: Any) -> None:
        """Add every error of `value` to the walk; raise `Stop` when it must end."""


class Walk:
    """One explanation under way: where we are, what was found, what may still be spent."""

    __slots__ = ("chunked", "convert", "cut", "errors", "loc", "room", "steps")

    def __init__(self, convert: Callable[[Any, Any], object]) -> None:
        self.convert = convert
        self.errors: list[dict[str, Any]] = []
        self.loc: list[Any] = []
        self.room = TEXT_LIMIT
        self.steps = STEP_LIMIT
        self.chunked = 0
        self.cut = False

    def add(self, kind: str, message: str, *below: Any) -> None:
        """Note an error here, or at a place below; raise `Stop` when the list is full."""
        if len(self.errors) >= ERROR_LIMIT or self.room < 0:
            self.cut = True
            raise Stop
        entry = wording.entry((*self.loc, *below), kind, message)
        self.room -= len(entry["path"]) + len(message)
        self.errors.append(entry)

    def refusal(self, value: object, kind: Any) -> Exception | None:
        """Ask msgspec whether it would read this value as this type."""
        try:
            self.convert(value, kind)
        except Exception as error:  # noqa: BLE001 - a hook may raise anything; whatever it is, the value was refused
            return error
        return None

    def tell(self, error: Exception, reworded: Mapping[str, tuple[str, str]] = MappingProxyType({})) -> None:
        """Note what msgspec refused, in better words where the type has them."""
        for place, kind, message in wording.findings(error):
            if kind != "raw_type":  # a Raw is refused only because the value was decoded already
                self.add(*reworded.get(kind, (kind, message)), *place)

    def below(self, label: Any, plan: Plan, value: object) -> None:
        """Check one part of the value. The place is not restored when the walk stops."""
        self.steps -= 1
        if self.steps < 0:
            raise Stop
        self.loc.append(label)
        if len(self.loc) > DEPTH_LIMIT:
            self.add("too_deep", f"Nested more than {DEPTH_LIMIT} levels deep")
        else:
            plan.check(self, value)
        self.loc.pop()

    def length(self, name: str, got: int, low: int | None, high: int | None) -> None:
        """Note a wrong length."""
        if (low is not None and got < low) or (high is not None and got > high):
            self.add(*wording.size(name, low, high, got))

    def suspects(
        self, parts: Sequence[Any], make: Callable[[Any], Any], kind: Any
    ) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield those runs of a long sequence that hold an error, with their start; a short sequence whole."""
        if len(parts) <= _CHUNK or self.chunked >= _CHUNKED_LEVELS:
            yield 0, parts
            return
        self.chunked += 1
        for start in range(0, len(parts), _CHUNK):
            run = parts[start : start + _CHUNK]
            if self.refusal(make(run), kind) is not None:
                yield start, run
        self.chunked -= 1


class Leaf(msgspec.Struct):
    """What msgspec judges alone: scalars, formats, custom types; also a container where none is expected."""

    type: Any
    reworded: dict[str, tuple[str, str]] = {}

    def check(self, walk: Walk, value: Any) -> None:
        """See `Plan.check`."""
        error = walk.refusal(value, self.type)
        if error is not None:
            walk.tell(error, self.reworded)


class Items(Leaf, kw_only=True):
    """A list, set or tuple of any length."""

    item: Plan
    items_type: Any
    low: int | None
    high: int | None

    def check(self, walk: Walk, value: Any) -> None:
        """See `Plan.check`."""
        parts = parts_of(value)
        if parts is None:
            super().check(walk, value)
            return
        walk.length("array", len(parts), self.low, self.high)
        for start, run in walk.suspects(parts, list, self.items_type):
            for index, part in enumerate(run, start):
                walk.below(index, self.item, part)


class Entries(Leaf, kw_only=True):
    """A dict with keys of one type and values of one type."""

    key: Leaf
    item: Plan
    items_type: Any
    low: int | None
    high: int | None

    def check(self, walk: Walk, value: Any) -> None:
        """See `Plan.check`."""
        members = members_of(value)
        if members is None:
            super().check(walk, value)
            return
        walk.length("object", len(members), self.low, self.high)
        for _, run in walk.suspects(list(members.items()), dict, self.items_type):
            for key, part in run:
                walk.below(key, self.key, {key: None})
                walk.below(key, self.item, part)


class Class(Leaf, kw_only=True):
    """What objects and records of fixed shape share: a tag, and code of their own that may refuse a whole."""

    tag: str | int | None = None
    own_code: bool = False

    def finish(self, walk: Walk, value: Any, known: int, steps: int) -> None:
        """Let `__post_init__` and validators speak once the parts are right; reading all again is paid in steps."""
        if self.own_code and len(walk.errors) == known:
            walk.steps -= steps - walk.steps
            super().check(walk, value)

    def check_tag(self, walk: Walk, tag: Any, label: str | int) -> None:
        """Note a tag that is missing or wrong."""
        if self.tag is not None and (type(tag), tag) != (type(self.tag), self.tag):
            walk.add("union_tag_invalid", wording.choice([self.tag]), label)


class Record(Class, kw_only=True):
    """An array whose positions have types: tuple, NamedTuple, array-like Struct."""

    items: list[Plan]
    low: int
    high: int | None

    def check(self, walk: Walk, value: Any) -> None:
        """See `Plan.check`."""
        parts = parts_of(value)
        if parts is None:
            super().check(walk, value)
            return
        known, steps, first = len(walk.errors), walk.steps, int(self.tag is not None)
        walk.length("array", len(parts), self.low, self.high)
        if parts and first:
            self.check_tag(walk, parts[0], 0)
        for index, (plan, part) in enumerate(zip(self.items, parts[first:], strict=False), first):
            walk.below(index, plan, part)
        self.finish(walk, value, known, steps)


class Object(Class, kw_only=True):
    """An object with named fields: Struct, dataclass, attrs, TypedDict."""

    fields: dict[str, tuple[Plan, bool]]
    tag_field: str | None
    closed: bool

    def check(self, walk: Walk, value: Any) -> None:
        """See `Plan.check`."""
        members = members_of(value)
        if members is None:
            super().check(walk, value)
            return
        known, steps = len(walk.errors), walk.steps
        if self.tag_field is not None and self.tag_field in members:
            self.check_tag(walk, members[self.tag_field], self.tag_field)
        for name, (plan, required) in self.fields.items():
            if name in members:
                walk.below(name, plan, members[name])
            elif required:
                walk.add("missing", "Missing", name)
        for name in (name for name in members if name not in self.fields and name != self.tag_field):
            if not isinstance(name, str):
                walk.add("string_type", f"Expected text, got {wording.received(name)}", name, "[key]")
            elif self.closed:
                walk.add("extra_forbidden", "Not expected here", name)
        self.finish(walk, value, known, steps)


class Tagged(msgspec.Struct):
    """Objects (or arrays) of several classes, told apart by a tag."""

    label: str | int
    plans: dict[str | int, Plan]

    def check(self, walk: Walk, value: Any) -> None:
        """See `Plan.check`."""
        try:
            tag = value[self.label]
        except (LookupError, TypeError):
            walk.add("union_tag_not_found", f"Missing. {wording.choice([*self.plans])}", self.label)
            return
        plan = self.plans.get(tag) if type(tag) in {str, int} else None
        if plan is None:
            walk.add("union_tag_invalid", wording.choice([*self.plans]), self.label)
        else:
            plan.check(walk, value)


class OneOf(Leaf, kw_only=True):
    """One of several types. msgspec allows only unions whose member the kind of the value (or its tag) decides."""

    objects: Plan | None = None
    arrays: Plan | None = None

    def check(self, walk: Walk, value: Any) -> None:
        """See `Plan.check`."""
        plan = self.objects if isinstance(value, dict) else self.arrays if isinstance(value, _ARRAYS) else None
        if plan is None:
            super().check(walk, value)
        else:
            plan.check(walk, value)
