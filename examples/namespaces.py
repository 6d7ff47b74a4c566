"""A larger service: groups of procedures, an object's methods, what is opened and closed around serving, who calls."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rpcfast import AsyncClient, Context, Namespace, NotFound, Server


@dataclass
class User:
    """What travels: a dataclass is enough."""

    id: int
    name: str


class Users:
    """Its public methods become procedures; the rest stays private."""

    def __init__(self, rows: dict[int, User]) -> None:
        self._rows = rows

    def get(self, user_id: int) -> User:
        """Find a user."""
        if user_id not in self._rows:
            raise NotFound(f"there is no user {user_id}")
        return self._rows[user_id]


table: dict[int, User] = {}  # stands for a database


@asynccontextmanager
async def lifespan(_: Server) -> AsyncGenerator[None]:
    """Runs around serving: before the first call, and after the last one."""
    table[1] = User(1, "Ada")
    yield
    table.clear()


clock = Namespace("clock")


@clock
async def wait(ctx: Context, seconds: float) -> str:
    """Wait; say who asked, and how long the caller would have waited. `ctx` is filled in, never sent."""
    await asyncio.sleep(seconds)
    left = "for ever" if ctx.deadline is None else f"{ctx.deadline.remaining():.0f} s more"
    return f"{ctx.metadata.get('tenant', 'nobody')} would wait {left}"


server = Server("office", "1.0", lifespan=lifespan)
server.include(clock)  # clock.wait
server.include(Users(table), prefix="users")  # users.get


async def main() -> None:
    """Call it in this process."""
    async with AsyncClient(server) as client:
        print(await client.call("users.get", 1, result_type=User))
        print(await client.call("clock.wait", 0.01, timeout=60.0, metadata={"tenant": "Ada"}))


if __name__ == "__main__":
    asyncio.run(main())
