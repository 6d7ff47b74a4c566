"""The quick start: three typed functions, served to everyone. Run it with `rpcfast serve examples/quickstart.py`."""

from rpcfast import Server

server = Server("quickstart")


@server
def sum(a: int, b: int) -> int:  # noqa: A001  # the procedure's name
    """Add two numbers."""
    return a + b


@server(name="text.upper", readonly=True, timeout=2.0)
async def upper(text: str) -> str:
    """Write a text in capitals."""
    return text.upper()


@server(thread=True)
def count_lines(path: str) -> int:
    """Count the lines of a file on the server; reading blocks, so it runs in a thread."""
    with open(path, encoding="utf-8") as lines:
        return len(lines.readlines())


if __name__ == "__main__":
    server.run()
