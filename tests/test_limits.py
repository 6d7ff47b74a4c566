"""Limits: every one is a positive number, and the defaults are those that were decided."""

import msgspec
import pytest

from rpcfast.limits import Limits

NAMES = Limits.__struct_fields__


def test_defaults_are_the_decided_ones() -> None:
    """A change of a default is a change of what users rely on."""
    assert msgspec.structs.asdict(Limits()) == {
        "max_message_size": 16 * 2**20,
        "max_batch": 5_000,
        "max_connections": 65_536,
        "max_in_flight": 1_024,
        "max_threads": 32,
        "max_waiting": 10_000,
        "first_byte_timeout": 10.0,
        "frame_timeout": 30.0,
        "min_rate": 240.0,
        "idle_timeout": 60.0,
        "write_timeout": 10.0,
        "write_high_water": 65_536,
        "drain_timeout": 30.0,
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1, -0.5])
def test_limit_must_be_positive(name: str, value: float) -> None:
    """No limit can be switched off by 0; the text names it."""
    with pytest.raises(ValueError, match=rf"Limits\({name}={value}\): it must be more than 0"):
        Limits(**{name: value})


def test_limits_do_not_change() -> None:
    """A limit is set once, by keyword."""
    limits = Limits(max_batch=7)
    assert limits.max_batch == 7
    with pytest.raises(AttributeError):
        limits.max_batch = 8
    with pytest.raises(TypeError):
        Limits(7)
