"""The walk keeps its place and its budget."""

from typing import Any

import msgspec
import pytest

from rpcfast.validation.checks import DEPTH_LIMIT, ERROR_LIMIT, STEP_LIMIT, Items, Leaf, Stop, Walk

NUMBERS = Items(list[int], item=Leaf(int), items_type=list[int], low=None, high=None)


def walk(calls: list[Any] | None = None) -> Walk:
    """Start a walk; `calls` collects what msgspec is asked to read."""

    def convert(value: Any, kind: Any) -> object:
        if calls is not None:
            calls.append(value)
        return msgspec.convert(value, kind)

    return Walk(convert)


def test_place_is_kept() -> None:
    """After a part was checked, wrong or right, the walk is where it was."""
    here = walk()
    here.loc = ["a"]
    here.below("b", NUMBERS, [1, "x"])
    assert here.loc == ["a"]
    assert [error["path"] for error in here.errors] == ["$.a.b[1]"]


def test_short_list_is_walked_and_long_one_read_in_runs() -> None:
    """A long sound list costs a look per run, not per item; in a run with an error each item is looked at."""
    calls: list[Any] = []
    here = walk(calls)
    NUMBERS.check(here, [1, 2, 3])
    assert calls == [1, 2, 3]
    calls.clear()
    NUMBERS.check(here, [0] * 100_000)
    assert len(calls) < 500
    assert here.steps == STEP_LIMIT - 3
    NUMBERS.check(here, [0] * 99_999 + ["x"])
    assert [error["loc"] for error in here.errors] == [[99_999]]


def test_steps_run_out() -> None:
    """The walk stops when its steps are spent."""
    here = walk()
    here.steps = 2
    with pytest.raises(Stop):
        NUMBERS.check(here, [1, 2, 3])


def test_list_of_errors_is_full() -> None:
    """The walk stops at the error after the last that is listed, and says that it was cut."""
    here = walk()
    for _ in range(ERROR_LIMIT):
        here.add("missing", "Missing")
    assert not here.cut
    with pytest.raises(Stop):
        here.add("missing", "Missing")
    assert here.cut
    assert len(here.errors) == ERROR_LIMIT


def test_depth_is_an_error() -> None:
    """What lies too deep is not looked at, but told."""
    here = walk()
    here.loc = ["x"] * DEPTH_LIMIT
    here.below(0, Leaf(int), 1)
    assert [error["type"] for error in here.errors] == ["too_deep"]


def test_text_is_limited() -> None:
    """Long paths fill the list before its hundredth error: an answer stays small beside the call."""
    here = walk()
    here.loc = ["key" * 30] * 100
    with pytest.raises(Stop):
        NUMBERS.check(here, ["x"] * 50)
    assert 5 < len(here.errors) < 10
    assert here.cut
