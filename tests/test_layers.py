"""The floors of the house: a module imports only from lower ones, and `wire/` touches no outside world.

Every import counts, wherever it stands: at the top, inside a function (it is a dependency all the same, only a later
one), under `TYPE_CHECKING` (what a module must name, it must know), and `import_module("...")` with a literal name.
Reads source text only; imports nothing of rpcfast.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = "rpcfast"
SOURCE = Path(__file__).parents[1] / PACKAGE

# From the bottom up. Modules of one row do not know each other. The number is the floor of CONTRIBUTING.md;
# most floors have an order of their own. A row may name a whole sub-package.
FLOORS = (
    (0, ("errors", "integers")),
    (1, ("schema", "limits")),
    (1, ("validation",)),
    (1, ("wire", "transport")),
    (2, ("codecs", "call", "codegen")),
    (3, ("handlers",)),
    (3, ("service",)),
    (3, ("caller", "control")),
    (4, ("connection",)),
    (4, ("watchdog",)),
    (5, ("serving",)),
    (5, ("server",)),
    (6, ("link",)),
    (6, ("blocking", "portal")),
    (6, ("client",)),
    (7, ("testing", "cli")),
    (8, ("__init__", "__main__")),
    (8, ("quickstart",)),  # stands where a user's file stands, above everything
)
# Inside a sub-package, cycles are refused; where the order is fixed, it stands here, as above.
WIRE = (("events",), ("calls", "jsontext"), ("native", "jsonrpc"), ("__init__",))
# Bytes in, events out: a core is given its bytes and its time, and can therefore be tested without either.
NOT_IN_WIRE = {
    "_thread",
    "asyncio",
    "concurrent",
    "multiprocessing",
    "select",
    "selectors",
    "socket",
    "ssl",
    "threading",
    "time",
    "uvloop",
}

LEVEL = {name: level for level, (_, names) in enumerate(FLOORS) for name in names}
WIRE_LEVEL = {name: level for level, names in enumerate(WIRE) for name in names}


def read_package(root: Path) -> dict[str, str]:
    """Read every module under `root` as {"wire.native": source, "wire.__init__": source, ...}."""
    return {".".join(path.relative_to(root).with_suffix("").parts): path.read_text() for path in root.rglob("*.py")}


def imported_names(module: str, source: str) -> Iterator[str]:
    """Give the full dotted name of everything that a module of the package imports."""
    package = [PACKAGE, *module.split(".")[:-1]]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                parts = package[: len(package) - level + 1] if level else []
                prefix = ".".join([*parts, *([base] if base else [])])
                yield from (f"{prefix}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def resolve(name: str, modules: Mapping[str, str]) -> str | None:
    """Find the module of the package that a dotted name leads to; None when it is not ours."""
    first, *rest = name.split(".")
    if first != PACKAGE:
        return None
    for end in range(len(rest), 0, -1):
        tail = ".".join(rest[:end])
        if tail in modules:
            return tail
        if f"{tail}.__init__" in modules:
            return f"{tail}.__init__"
    return "__init__"


def own_imports(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Draw the graph: which modules of the package each of them imports."""
    graph = {}
    for module, source in modules.items():
        targets = {resolve(name, modules) for name in imported_names(module, source)}
        graph[module] = {target for target in targets if target is not None and target != module}
    return graph


def wrong_floor(module: str, target: str) -> str | None:
    """Say what is wrong with one import, None when nothing is."""
    here, there = module.split("."), target.split(".")
    if here[0] != there[0]:
        levels, a, b = LEVEL, here[0], there[0]
    elif here[0] == "wire":
        levels, a, b = WIRE_LEVEL, here[1], there[1]
    else:
        return None
    if a not in levels or b not in levels or levels[b] < levels[a]:
        return None  # a module that no table names is reported by itself
    return f"{module} imports {target}: {'sideways' if levels[a] == levels[b] else 'upward'}"


def in_cycle(module: str, graph: Mapping[str, set[str]]) -> bool:
    """Tell whether a module reaches itself."""
    seen: set[str] = set()
    ahead = list(graph[module])
    while ahead:
        target = ahead.pop()
        if target == module:
            return True
        if target not in seen:
            seen.add(target)
            ahead.extend(graph[target])
    return False


def violations(modules: Mapping[str, str]) -> list[str]:
    """Name everything in a package, given as {module: source}, that breaks the order of the house."""
    graph = own_imports(modules)
    found = [
        f"{module} stands on no floor: add it to the table"
        for module in modules
        if module.split(".")[0] not in LEVEL or (module.startswith("wire.") and module.split(".")[1] not in WIRE_LEVEL)
    ]
    found += filter(None, (wrong_floor(module, target) for module in graph for target in graph[module]))
    found += [f"{module} imports itself in a circle" for module in graph if in_cycle(module, graph)]
    for module, source in modules.items():
        if module.startswith("wire."):
            names = {name.split(".")[0] for name in imported_names(module, source)}
            found += [f"{module} imports {name}: not in wire/" for name in sorted(names & NOT_IN_WIRE)]
    return found


def test_every_module_imports_only_from_lower_floors() -> None:
    """The package itself breaks no rule, and was read at all."""
    modules = read_package(SOURCE)
    assert "__init__" in modules
    assert violations(modules) == []


ALLOWED = {
    "errors": "import enum",
    "schema": "from rpcfast.errors import RPCError",
    "wire.__init__": "",
    "wire.events": "import struct\nfrom rpcfast.schema import Spec",
    "wire.calls": "from rpcfast.wire.events import Event",
    "wire.native": "from . import calls, events\nfrom ..errors import RPCError",
    "client": "def dial():\n    from rpcfast import connection, server",
    "connection": "import asyncio, time",
    "server": "",
    "__init__": "from rpcfast.client import Client",
    "cli.__init__": "from rpcfast.cli.serve import serve",
    "cli.serve": "import importlib\nimportlib.import_module('rpcfast.server')",
}


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("errors", "import rpcfast.schema", "errors imports schema: upward"),
        ("schema", "def f():\n    from rpcfast.server import Server", "schema imports server: upward"),
        ("schema", "if TYPE_CHECKING:\n    from rpcfast import client", "schema imports client: upward"),
        ("server", "from . import __version__", "server imports __init__: upward"),
        ("server", "import_module('rpcfast.client')", "server imports client: upward"),
        ("codecs", "from rpcfast import call", "codecs imports call: sideways"),
        ("cli.serve", "from rpcfast.testing import connect", "cli.serve imports testing: sideways"),
        ("cli.serve", "from rpcfast.cli import serve_all", "cli.serve imports itself in a circle"),
        ("wire.events", "from rpcfast.wire.calls import Calls", "wire.events imports wire.calls: upward"),
        ("wire.native", "from . import jsonrpc", "wire.native imports wire.jsonrpc: sideways"),
        ("wire.native", "import asyncio.events", "wire.native imports asyncio: not in wire/"),
        ("wire.calls", "from time import monotonic", "wire.calls imports time: not in wire/"),
        ("wire.gopher", "", "wire.gopher stands on no floor: add it to the table"),
        ("utils", "", "utils stands on no floor: add it to the table"),
    ],
)
def test_a_broken_rule_is_named(module: str, source: str, fault: str) -> None:
    """Each way to break the order is found, in a package that is in order but for that one line."""
    package = {**ALLOWED, "codecs": "", "call": "", "testing": "", "wire.jsonrpc": ""}
    assert violations(package) == []
    assert fault in violations({**package, module: source})
