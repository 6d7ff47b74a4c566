"""The table of calls in flight: ids and deadlines; floor 1: a value object. Time comes in as an argument.

An id is a number that grows; a protocol whose ids are anything hashable may use those.
A call that is answered within its own read never comes here.
"""

from __future__ import annotations

from math import inf
from typing import Any, Generic, TypeVar

__all__ = ["CallTable"]

T = TypeVar("T")


class CallTable(dict[Any, tuple[float, T]], Generic[T]):
    """Calls by id: each with the moment (seconds, the caller's clock) at which it expires, and what waits for it.

    A dict, so that `len` and `in` cost what they cost in C; entries are added and taken by the methods here.
    """

    __slots__ = ("last_id", "next_expiry")

    def __init__(self) -> None:
        super().__init__()
        self.next_expiry = inf
        """No call expires before this moment; it may be earlier than the first one that does."""
        self.last_id = 0

    def __repr__(self) -> str:
        return f"<CallTable {len(self)} in flight, last id {self.last_id}>"

    def new_id(self) -> int:
        """The next id; ids grow and are never used again."""
        self.last_id += 1
        return self.last_id

    def add(self, call_id: Any, waiting: T, deadline: float = inf) -> bool:
        """Enter a call. True when it expires before every other: its owner has a timer to set."""
        self[call_id] = (deadline, waiting)
        if deadline < self.next_expiry:
            self.next_expiry = deadline
            return True
        return False

    def waiting(self, call_id: Any) -> T | None:
        """What waits for the call, which stays in the table."""
        entry = self.get(call_id)
        return None if entry is None else entry[1]

    def take(self, call_id: Any) -> T | None:
        """Take a call out; None when it is unknown, finished or expired."""
        entry = self.pop(call_id, None)
        return None if entry is None else entry[1]

    def take_first(self) -> T:
        """Take the oldest call out; raises `StopIteration` when there is none."""
        return self.pop(next(iter(self)))[1]

    def in_order(self) -> list[tuple[Any, T]]:
        """Every call with what waits for it, oldest first: a copy, so that calls may be taken meanwhile."""
        return [(call_id, waiting) for call_id, (_, waiting) in self.items()]

    def expired(self, now: float) -> list[tuple[Any, T]]:
        """The calls whose deadline is `now` or past; they stay until taken, without a deadline. Renews `next_expiry`.

        A scan, not a heap: most calls end long before their deadline, so the timer fires at most once per timeout and
        a call pays one comparison, not a push and a lazy removal.
        """
        dead = [(call_id, waiting) for call_id, (deadline, waiting) in self.items() if deadline <= now]
        for call_id, waiting in dead:
            self[call_id] = (inf, waiting)
        self.next_expiry = min((deadline for deadline, _ in self.values()), default=inf)
        return dead

    def drain(self) -> list[tuple[Any, T]]:
        """Take every call out."""
        calls = self.in_order()
        self.clear()
        self.next_expiry = inf
        return calls
