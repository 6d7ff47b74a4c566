"""What a TARGET may be, and what is said about one that is nothing."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcfast.cli.failure import Failure
from rpcfast.cli.loading import load_server

ONE = "from rpcfast import Server\nserver = Server('one')\nalias = server\n"
TWO = "from rpcfast import Server\nfirst = Server('first')\nsecond = Server('second')\nclass box:\n    inner = first\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to stand in; what a test imports is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refused(target: str | None) -> str:
    """What is said about a target that cannot be loaded."""
    with pytest.raises(Failure) as raised:
        load_server(target)
    assert raised.value.code == 2
    return raised.value.text


@pytest.mark.parametrize("target", ["one.py", "./one.py", "one", "one.py:alias", "one:server"])
def test_the_one_server_is_found(folder: Path, target: str) -> None:
    """By file or module, named or not; a second name of the same server is no second server."""
    (folder / "one.py").write_text(ONE)
    assert load_server(target).name == "one"


def test_one_of_two_is_named(folder: Path) -> None:
    """An attribute chooses, also one inside another."""
    (folder / "two.py").write_text(TWO)
    assert load_server("two.py:second").name == "second"
    assert load_server("two:box.inner").name == "first"


def test_without_a_target_the_usual_files_are_looked_for(folder: Path) -> None:
    """main.py goes before app.py."""
    (folder / "app.py").write_text(ONE)
    assert load_server(None).name == "one"
    (folder / "main.py").write_text(ONE.replace("'one'", "'main'"))
    assert load_server(None).name == "main"


def test_a_file_imports_its_neighbours(folder: Path) -> None:
    """Plain ones by name; inside a package, by a leading dot too. The folder that one stands in does not matter."""
    package = folder / "deep" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "names.py").write_text("NAME = 'relative'\n")
    (package / "api.py").write_text("from rpcfast import Server\nfrom .names import NAME\nserver = Server(NAME)\n")
    (folder / "deep" / "names_of_deep.py").write_text("NAME = 'plain'\n")
    (folder / "deep" / "api2.py").write_text(
        "from rpcfast import Server\nfrom names_of_deep import NAME\nserver = Server(NAME)\n"
    )
    assert load_server("deep/shop/api.py").name == "relative"
    assert load_server("deep/api2.py").name == "plain"


def test_a_file_may_be_named_like_a_standard_module(folder: Path) -> None:
    """It is loaded, and the module that everybody knows stays where it is."""
    (folder / "types.py").write_text(ONE)
    before = sys.modules["types"]
    assert load_server("types.py").name == "one"
    assert sys.modules["types"] is before


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (None, "no TARGET, and none of main.py, app.py, server.py is here"),
        ("nowhere.py", "there is no file nowhere.py in"),
        ("nowhere", "there is no module 'nowhere' in"),
        ("nowhere.deep:x", "there is no module 'nowhere.deep' in"),
        ("empty.py", "there is no Server in empty.py; make one"),
        ("two.py", "two.py has 2 servers: first, second; say which: two.py:first"),
        ("two.py:third", "two.py has no attribute 'third'; its servers: first, second"),
        ("two.py:box", "two.py:box is a type, not a Server"),
        ("./", "is a folder; name a file in it"),
        ("a b", "'a b' is neither a module nor a file"),
        (":x", "':x' is no TARGET"),
    ],
)
def test_a_wrong_target_is_told_in_one_line(folder: Path, target: str | None, words: str) -> None:
    """What is wrong, and what to type instead."""
    (folder / "empty.py").write_text("x = 1\n")
    (folder / "two.py").write_text(TWO)
    text = refused(target)
    assert text.startswith("error: ")
    assert words in text
    assert "\n" not in text


def test_a_file_that_was_meant_is_suggested(folder: Path) -> None:
    """A module's name in another spelling of its file: nothing is guessed, the file is named."""
    (folder / "my-app.py").write_text(ONE)
    assert "neither a module nor a file" in refused("my-app")
    assert load_server("my-app.py").name == "one"


@pytest.mark.parametrize(
    ("source", "first", "line"),
    [
        ("x = (\n", "SyntaxError: '(' was never closed", "user.py:1"),
        ("import not_there\n", "ModuleNotFoundError: No module named 'not_there'", 'user.py", line 1'),
        ("import sys\nsys.exit(3)\n", "it ended itself with sys.exit(3)", 'user.py", line 2'),
        (
            "from rpcfast import Server\nserver = Server()\n\n@server\ndef f(*a): ...\n",
            "TypeError: f(): *a cannot be served",
            'user.py", line 4',
        ),
        ("def f():\n    1 / 0\nf()\n", "ZeroDivisionError: division by zero", 'user.py", line 2, in f'),
    ],
)
@pytest.mark.parametrize("target", ["user.py", "user"])
def test_an_error_in_the_file_is_told_with_its_lines_only(
    folder: Path, target: str, source: str, first: str, line: str
) -> None:
    """The reason on the first line, then frames of the user's file: none of ours, none of the import system."""
    (folder / "user.py").write_text(source)
    text = refused(target)
    assert text.startswith(f"error: cannot load {target}: {first}")
    assert line in text
    assert "importlib" not in text
    assert "rpcfast/" not in text


def test_a_failing_package_is_told_too(folder: Path) -> None:
    """The file that fails may be the package above the module."""
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("1 / 0\n")
    (folder / "pack" / "api.py").write_text(ONE)
    assert refused("pack.api").startswith("error: cannot load pack.api: ZeroDivisionError")
