"""Runs the code blocks of a Markdown page, as a reader would who follows it from top to bottom.

The convention (CONTRIBUTING.md tells it to writers):
- `python` blocks run in order in one module per page, top-level `await` allowed. `expression  # => value` checks the
  value's repr. A block that opens with the comment `# name.py` is also saved under that name in the page's own folder.
- `console` blocks run their `$ ` lines, each in a shell of its own in the page's folder; the lines after a command are
  what it prints, with `...` for anything. A command that ends in ` &` serves until the page ends, and the next line
  runs when it answers.
- Port 8000 stands for a free port. Every other language is shown, not run.

Knows nothing of rpcfast; in an error, file and line are those of the page.
"""

import ast
import asyncio
import doctest
import inspect
import os
import re
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w-]+\.py)\n")
EXPECTED = re.compile(r"\s*# => (.+)")
PORT = "8000"
START_SECONDS = 15.0
COMMAND_SECONDS = 60.0


class WrongPageError(AssertionError):
    """A page says something that is not so."""


@dataclass
class Block:
    """One fenced block: its language, its text, and the line of the page on which the text begins."""

    language: str
    text: str
    line: int


@dataclass
class Page:
    """A page being followed: its folder, the module of its Python blocks, its servers."""

    path: Path
    folder: Path
    port: str
    module: types.ModuleType
    loop: asyncio.Runner
    servers: list[subprocess.Popen[str]] = field(default_factory=list)


def read_blocks(text: str) -> Iterator[Block]:
    """Give the fenced blocks of a page in order."""
    for match in FENCE.finditer(text):
        yield Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1)


def run_page(path: Path, folder: Path) -> int:
    """Follow a page in an empty folder and return how many blocks were run; raises at the first thing that is wrong."""
    module = types.ModuleType(f"page_{path.stem}")
    # Whoever resolves a class' annotations looks its module up by name.
    sys.modules[module.__name__] = module
    with asyncio.Runner() as loop:
        page = Page(path, folder, free_port(), module, loop)
        try:
            return sum(run_block(page, block) for block in read_blocks(path.read_text()))
        finally:
            for server in page.servers:
                stop(server)
            del sys.modules[module.__name__]


def run_block(page: Page, block: Block) -> bool:
    """Run one block if it is of a kind that runs; tell whether it was."""
    block.text = re.sub(rf"\b{PORT}\b", page.port, block.text)
    runners = {"python": run_python, "console": run_console}
    if block.language in runners:
        runners[block.language](page, block)
    return block.language in runners


def run_python(page: Page, block: Block) -> None:
    """Run a `python` block in the page's module."""
    if name := FILE_NAME.match(block.text):
        (page.folder / name[1]).write_text(block.text)
    tree = ast.parse(block.text, str(page.path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            add_check(node, block.text.splitlines())
    ast.increment_lineno(tree, block.line - 1)
    code = compile(tree, str(page.path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    vars(page.module)["__check__"] = check
    if code.co_flags & inspect.CO_COROUTINE:
        page.loop.run(types.FunctionType(code, vars(page.module))())
    else:
        exec(code, vars(page.module))


def add_check(node: ast.Expr, lines: list[str]) -> None:
    """Turn `expression  # => value` into a check of the value's repr."""
    tail = lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset :].decode()
    if expected := EXPECTED.fullmatch(tail):
        call = ast.Call(ast.Name("__check__", ast.Load()), [node.value, ast.Constant(expected[1].strip())], [])
        node.value = ast.fix_missing_locations(ast.copy_location(call, node))


def check(value: object, expected: str) -> None:
    """Compare a value with what the page says of it."""
    if repr(value) != expected:
        message = f"the page says {expected}, the value is {value!r}"
        raise WrongPageError(message)


def run_console(page: Page, block: Block) -> None:
    """Run the commands of a `console` block and compare what they print."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        if command.endswith(" &"):
            serve(page, command.removesuffix(" &"))
            continue
        done = subprocess.run(
            ["bash", "-c", command],
            **surroundings(page),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_SECONDS,
            check=False,  # a page may show a command that fails, and what it prints then
        )
        if not printed_as_said(done.stdout, expected):
            message = f"{page.path.name}: `{command}` prints, with exit code {done.returncode}:\n{done.stdout}"
            raise WrongPageError(message)


def printed_as_said(printed: str, expected: str) -> bool:
    """Compare output with the page, `...` standing for anything and blank ends for nothing."""
    said, got = expected.strip() + "\n", printed.strip() + "\n"
    return doctest.OutputChecker().check_output(said, got, doctest.ELLIPSIS)


def serve(page: Page, command: str) -> None:
    """Start a server for the rest of the page, and wait until its port answers."""
    log = page.folder / f"server-{len(page.servers)}.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            ["bash", "-c", command],
            **surroundings(page),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    page.servers.append(server)
    end = time.monotonic() + START_SECONDS
    while not answers(page.port):
        if server.poll() is not None or time.monotonic() > end:
            message = f"{page.path.name}: `{command}` does not answer on port {page.port}:\n{log.read_text()}"
            raise WrongPageError(message)
        time.sleep(0.05)  # another process' port gives no event to wait for


def surroundings(page: Page) -> dict:
    """Give a command the page's folder, this interpreter's programs, and the page's port where none is said."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {"cwd": page.folder, "env": os.environ | {"PATH": programs, "RPCFAST_PORT": page.port}, "text": True}


def answers(port: str) -> bool:
    """Tell whether somebody accepts connections on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def stop(server: subprocess.Popen[str]) -> None:
    """End a server and all that its shell started."""
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def free_port() -> str:
    """Find a port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
