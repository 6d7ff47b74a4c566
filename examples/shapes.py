"""Types: tagged unions, constraints, integers of fixed width, dates, and pydantic models where there is pydantic."""

from datetime import date, timedelta
from math import pi
from typing import Annotated

import msgspec

from rpcfast import Client, RPCError, Server
from rpcfast.integers import UInt8

try:
    from pydantic import BaseModel
except ImportError:  # rpcfast needs no pydantic
    BaseModel = None  # type: ignore[assignment,misc]

server = Server("shapes")


class Circle(msgspec.Struct, tag="circle"):
    """One kind of shape. The tag travels, so that the other side makes the same class again."""

    radius: Annotated[float, msgspec.Meta(gt=0)]


class Square(msgspec.Struct, tag="square"):
    """Another one."""

    side: Annotated[float, msgspec.Meta(gt=0)]


@server
def area(shape: Circle | Square) -> float:
    """Measure any shape."""
    return pi * shape.radius**2 if isinstance(shape, Circle) else shape.side**2


@server
def grey(level: UInt8) -> str:
    """Name a shade: 0 to 255, and nothing else gets in."""
    return f"#{level:02x}{level:02x}{level:02x}"


@server
def tomorrow(today: date) -> date:
    """Dates, times, UUIDs, decimals and enums need no help."""
    return today + timedelta(days=1)


if BaseModel is not None:

    class Person(BaseModel):
        """A pydantic model is a type like any other."""

        name: str
        age: int = 0

    @server
    def greet(person: Person) -> str:
        """Greet somebody."""
        return f"Hello {person.name}"


def main() -> None:
    """Call it in this process."""
    with Client(server) as client:
        print(client.area({"type": "square", "side": 3.0}))  # plain data ...
        print(client.area(Square(3.0)))  # ... or the same class
        print(client.call("tomorrow", date(2026, 12, 31), result_type=date))
        for level in (128, 256):
            try:
                print(client.grey(level))
            except RPCError as error:
                print(error)
        if BaseModel is not None:
            print(client.greet(person={"name": "Ada"}))


if __name__ == "__main__":
    main()
