"""Damaged streams in great number, over every core: a documented event is the only way out, and cuts do not matter.

`RPCFAST_FUZZ_EXAMPLES` says how many; without it, two hundred, or as many as the profile of `nox -s fuzz` says.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.wire.cores import SPEAKERS, Speaker, cut, documented, feed, mutated

pytestmark = pytest.mark.fuzz

EXAMPLES = int(os.environ.get("RPCFAST_FUZZ_EXAMPLES", "0")) or max(200, settings().max_examples)
budget = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
every_core = pytest.mark.parametrize("speaker", SPEAKERS, ids=repr)


@every_core
@budget
@given(st.data())
def test_damage_gives_documented_events(speaker: Speaker, data: st.DataObject) -> None:
    """Whatever is done to a stream, the core raises nothing and gives events that its protocol knows."""
    documented(speaker, data.draw(mutated(speaker)))


@every_core
@budget
@given(st.data())
def test_cuts_of_damage_do_not_matter(speaker: Speaker, data: st.DataObject) -> None:
    """A damaged stream gives the same events whole, in two or more parts, and byte by byte."""
    stream = data.draw(mutated(speaker))
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=4))
    whole = feed(speaker.make(), [stream])
    assert feed(speaker.make(), cut(stream, places)) == whole
    assert feed(speaker.make(), cut(stream, range(len(stream)))) == whole
