"""The vocabulary of events: numbers that stand on the wire, and cores that keep the contract."""

import inspect

import pytest

from rpcfast.wire.events import Core, Kind
from tests.wire.cores import SPEAKERS, Speaker

KINDS = {name: value for name, value in vars(Kind).items() if name.isupper()}


def test_kinds_in_frames_have_the_numbers_of_the_page() -> None:
    """Kinds 1 to 13 stand in native frames, so their numbers never change."""
    on_the_wire = {name: value for name, value in KINDS.items() if value < 20}
    assert on_the_wire == {
        "CALL": 1,
        "NOTIFICATION": 2,
        "RESULT": 3,
        "ERROR": 4,
        "STREAM_ITEM": 5,
        "STREAM_END": 6,
        "CANCEL": 7,
        "CREDIT": 8,
        "PING": 9,
        "PONG": 10,
        "GOING_AWAY": 11,
        "HELLO": 12,
        "EVENT": 13,
    }


def test_kinds_are_distinct_plain_integers() -> None:
    """Each kind is a key of one table."""
    assert {type(value) for value in KINDS.values()} == {int}
    assert len(set(KINDS.values())) == len(KINDS)


@pytest.mark.parametrize("speaker", SPEAKERS, ids=repr)
def test_cores_have_the_five_verbs(speaker: Speaker) -> None:
    """Each core has the five verbs, with the parameters that the contract names."""
    core = speaker.make()
    verbs = [name for name, verb in vars(Core).items() if inspect.isfunction(verb) and not name.startswith("_")]
    assert verbs == ["receive_data", "receive_eof", "next_events", "send", "data_to_send"]
    for verb in verbs:
        expected = list(inspect.signature(getattr(Core, verb)).parameters)[1:]
        assert list(inspect.signature(getattr(core, verb)).parameters) == expected
