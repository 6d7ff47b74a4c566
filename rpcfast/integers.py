"""Integers of fixed width, checked by range where a value comes in; floor 1: types only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

__all__ = ["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"]

Int8 = Annotated[int, Meta(ge=-(2**7), le=2**7 - 1)]
Int16 = Annotated[int, Meta(ge=-(2**15), le=2**15 - 1)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
UInt8 = Annotated[int, Meta(ge=0, le=2**8 - 1)]
UInt16 = Annotated[int, Meta(ge=0, le=2**16 - 1)]
UInt32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]

if TYPE_CHECKING:
    UInt64 = Annotated[int, Meta(ge=0)]
else:

    class _PlainInt(type):
        def __instancecheck__(cls, value: Any) -> bool:
            # msgspec asks whether what `check` gave back is of the class: a plain int is.
            return type(value) is int

    class UInt64(metaclass=_PlainInt):
        """An integer from 0 to 2**64 - 1; a class, since msgspec takes no bound beyond 63 bits. Values are `int`."""

        @staticmethod
        def check(value: Any) -> int:
            """Give `value` back; raise `ValueError` when it is no integer of this width."""
            if type(value) is not int or not 0 <= value < 2**64:
                raise ValueError("Expected an integer from 0 to 18446744073709551615")
            return value
