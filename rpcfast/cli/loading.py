"""Finds the `Server` that a TARGET names: `module:attribute`, `file.py` or `file.py:attribute`.

What is wrong with the target, or with the user's own file, is said in the user's terms: file, line and reason, without
frames of ours.
"""

from __future__ import annotations

import sys
import traceback
from functools import reduce
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rpcfast.cli.failure import Failure
from rpcfast.server import Server

__all__ = ["blame", "load_server"]

GUESSES: Final = ("main.py", "app.py", "server.py")
"""Files that are looked for when no target is named."""


def load_server(target: str | None) -> Server:
    """Import what `target` names and find its one `Server`; raises `Failure` that says what to do."""
    where, attribute = _split(target or _guess())
    module = _import_file(Path(where)) if _is_file(where) else _import_module(where)
    return _named(module, where, attribute) if attribute else _only(module, where)


def _guess() -> str:
    for name in GUESSES:
        if Path(name).is_file():
            return name
    names = ", ".join(GUESSES)
    raise Failure(f"error: no TARGET, and none of {names} is here; name a file or module: rpcfast serve quickstart.py")


def _split(target: str) -> tuple[str, str]:
    where, colon, attribute = target.rpartition(":")
    if not colon:
        return target, ""
    if not where or not attribute:
        raise Failure(f"error: {target!r} is no TARGET; write file.py, file.py:attribute or module:attribute")
    return where, attribute


def _is_file(where: str) -> bool:
    return where.endswith(".py") or "/" in where or "\\" in where


def _import_file(path: Path) -> ModuleType:
    if path.is_dir():
        raise Failure(f"error: {path} is a folder; name a file in it, such as {path / 'main.py'}")
    if not path.is_file():
        raise Failure(f"error: there is no file {path} in {Path.cwd()}; check the TARGET")
    path = path.resolve()
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():  # a file of a package may import its neighbours by a leading dot
        names, folder = [folder.name, *names], folder.parent
    sys.path.insert(0, str(folder))
    return _guarded(path.name, lambda: import_module(".".join(names)) if names[1:] else _run_file(path))


def _run_file(path: Path) -> ModuleType:
    """Import a file that may be named like any module there is, such as `types.py`."""
    name = path.stem if path.stem not in sys.modules and path.stem.isidentifier() else f"_target_{path.stem}"
    spec = util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Failure(f"error: {path} is no Python file; its name must end in .py")
    module = util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and annotations look their module up there
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise Failure(f"error: {name!r} is neither a module nor a file; write file.py or module:attribute")
    sys.path.insert(0, str(Path.cwd()))
    try:
        known = util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        known = not f"{name}.".startswith(f"{error.name}.")  # else a package above it is missing
    except Exception as error:  # noqa: BLE001  # whatever the package above it raises
        raise Failure(blame(error, f"cannot load {name}")) from None
    if not known:
        hint = f"; did you mean {name}.py?" if Path(f"{name}.py").is_file() else ""
        raise Failure(f"error: there is no module {name!r} in {Path.cwd()} or the environment{hint}")
    return _guarded(name, lambda: import_module(name))


def _guarded(label: str, load: Any) -> ModuleType:
    try:
        module: ModuleType = load()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's file may raise anything
        raise Failure(blame(error, f"cannot load {label}")) from None
    return module


_OURS: Final = str(Path(__file__).parents[1])


def blame(error: BaseException, what: str) -> str:
    """What failed and why, on one line; then its frames, without ours and those of the import system."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    if isinstance(error, SystemExit):
        reason = f"it ended itself with sys.exit({error.code!r})"
    elif isinstance(error, SyntaxError):
        reason = f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
        frames = []
    else:
        reason = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([f"error: {what}: {reason}", *(line.rstrip() for line in traceback.format_list(frames))])


def _is_ours(filename: str) -> bool:
    return filename.startswith(("<frozen importlib", _OURS)) or "importlib" in Path(filename).parts


def _servers(module: ModuleType) -> dict[str, Server]:
    """The servers of a module, each once, by the first name that it has there."""
    found: dict[int, tuple[str, Server]] = {}
    for name, value in vars(module).items():
        if isinstance(value, Server):
            found.setdefault(id(value), (name, value))
    return dict(found.values())


def _only(module: ModuleType, where: str) -> Server:
    servers = _servers(module)
    if not servers:
        raise Failure(f"error: there is no Server in {where}; make one: server = rpcfast.Server()")
    if len(servers) > 1:
        names = ", ".join(servers)
        raise Failure(f"error: {where} has {len(servers)} servers: {names}; say which: {where}:{next(iter(servers))}")
    return next(iter(servers.values()))


def _named(module: ModuleType, where: str, attribute: str) -> Server:
    try:
        found = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        there = ", ".join(_servers(module)) or "none"
        raise Failure(f"error: {where} has no attribute {attribute!r}; its servers: {there}") from None
    if not isinstance(found, Server):
        raise Failure(f"error: {where}:{attribute} is a {type(found).__name__}, not a Server")
    return found
