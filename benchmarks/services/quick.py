"""The service that most rows call: the cheapest functions there are, so that what is measured is the framework."""

from rpcfast import Server

server = Server()


@server
def sum(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server
async def sum_async(a: int, b: int) -> int:
    """Add two numbers in a coroutine that never waits."""
    return a + b
