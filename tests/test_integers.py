"""Integers of fixed width, through every codec, at their edges."""

from typing import Any, get_args

import msgspec
import pytest

from rpcfast import integers
from rpcfast.codecs import get_codec

SIGNED = {f"Int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}
UNSIGNED = {f"UInt{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)}
WIDTHS = {**SIGNED, **UNSIGNED}


def test_all_widths_are_there() -> None:
    """The page has the eight widths and nothing else."""
    assert set(integers.__all__) == set(WIDTHS)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize("name", WIDTHS)
def test_edges(name: str, codec: str) -> None:
    """The smallest and largest value pass as plain integers; one beyond, a bool, a float and a text are refused."""
    kind, (low, high) = getattr(integers, name), WIDTHS[name]
    encode, decode = get_codec(codec).bind(kind)
    plain = get_codec(codec).bind(Any)[0]
    for value in (low, 0, high):
        decoded = decode(encode(value))
        assert decoded == value
        assert type(decoded) is int
    wrong: list[Any] = [True, 0.5, "1", None]
    if low > -(2**63):
        wrong.append(low - 1)
    if high < 2**64 - 1:
        wrong.append(high + 1)
    for value in wrong:
        with pytest.raises(msgspec.ValidationError):
            decode(plain(value))


def test_beyond_64_bits_in_json() -> None:
    """JSON can write an integer that is too large for the largest width; it is refused, not cut."""
    for name, text in (("UInt64", b"18446744073709551616"), ("Int64", b"9223372036854775808"), ("UInt64", b"-1")):
        with pytest.raises(msgspec.ValidationError):
            get_codec("json").bind(getattr(integers, name))[1](text)


def test_bounds_stand_in_the_annotation() -> None:
    """The bounds can be read by generators of documents."""
    for name, (low, high) in WIDTHS.items():
        if name != "UInt64":
            _, meta = get_args(getattr(integers, name))
            assert (meta.ge, meta.le) == (low, high)
