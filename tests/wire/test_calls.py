"""The table of calls in flight, with time as an argument."""

from math import inf

import pytest

from rpcfast.wire.calls import CallTable


def test_ids_grow_and_are_never_used_again() -> None:
    """Ids count from 1, whatever is taken out meanwhile."""
    table: CallTable[str] = CallTable()
    ids = []
    for _ in range(3):
        ids.append(table.new_id())
        table.add(ids[-1], "x")
        table.take(ids[-1])
    assert ids == [1, 2, 3]


def test_a_call_is_taken_once() -> None:
    """What waits for a call is given once; an unknown id gives nothing."""
    table: CallTable[str] = CallTable()
    table.add(1, "one")
    assert table.waiting(1) == "one"
    assert 1 in table
    assert table.take(1) == "one"
    assert table.take(1) is None
    assert table.waiting(1) is None
    assert len(table) == 0


def test_ids_may_be_anything_hashable() -> None:
    """A protocol with ids of its own uses those."""
    table: CallTable[str] = CallTable()
    for key in ("a", None, 1.5):
        table.add(key, str(key))
    assert [table.take(key) for key in (None, "a", 1.5)] == ["None", "a", "1.5"]


def test_calls_keep_their_order() -> None:
    """The oldest call is taken first, and a list of all begins with it; the list is a copy."""
    table: CallTable[str] = CallTable()
    for call_id, name in enumerate("abc", 1):
        table.add(call_id, name)
    calls = table.in_order()
    assert table.take_first() == "a"
    assert calls == [(1, "a"), (2, "b"), (3, "c")]
    assert table.drain() == [(2, "b"), (3, "c")]
    with pytest.raises(StopIteration):
        table.take_first()


def test_add_tells_who_expires_first() -> None:
    """True is for the call whose deadline is before all others: then a timer is to be set."""
    table: CallTable[str] = CallTable()
    assert table.next_expiry == inf
    assert [table.add(i, "x", at) for i, at in enumerate((5.0, 7.0, 5.0, 3.0, inf))] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert table.next_expiry == 3.0


def test_expired_calls_are_those_at_or_past_their_deadline() -> None:
    """A deadline that is now has passed; the calls stay until taken, and do not expire again."""
    table: CallTable[str] = CallTable()
    for at in (1.0, 2.0, 3.0, inf):
        table.add(at, f"{at}", at)
    assert table.expired(0.5) == []
    assert table.expired(2.0) == [(1.0, "1.0"), (2.0, "2.0")]
    assert table.next_expiry == 3.0
    assert table.expired(2.5) == []
    assert len(table) == 4
    assert table.take(1.0) == "1.0"
    assert table.expired(99.0) == [(3.0, "3.0")]
    assert table.next_expiry == inf


def test_next_expiry_may_be_early_but_never_late() -> None:
    """When the call that expires first is taken, the timer may fire for nothing; the next look corrects it."""
    table: CallTable[str] = CallTable()
    table.add(1, "x", 1.0)
    table.add(2, "y", 9.0)
    table.take(1)
    assert table.next_expiry == 1.0
    assert table.expired(1.0) == []
    assert table.next_expiry == 9.0


def test_drained_table_is_as_new() -> None:
    """After a drain nothing waits or expires, but ids go on."""
    table: CallTable[str] = CallTable()
    table.add(table.new_id(), "x", 1.0)
    assert table.drain() == [(1, "x")]
    assert (len(table), table.next_expiry, table.new_id()) == (0, inf, 2)


def test_repr_shows_numbers() -> None:
    """The debugger shows how many are in flight."""
    table: CallTable[str] = CallTable()
    table.add(table.new_id(), "x")
    assert repr(table) == "<CallTable 1 in flight, last id 1>"
