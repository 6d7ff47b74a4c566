"""The runner of the documentation's blocks: it runs what it should, and fails where a page is wrong."""

from pathlib import Path

import pytest

from tests.docs.blocks import WrongPageError, run_page


def follow(folder: Path, *blocks: tuple[str, str]) -> int:
    """Write a page of (language, text) blocks and follow it."""
    page = folder / "page.md"
    page.write_text("# A page\n\n" + "\n\n".join(f"```{language}\n{text}\n```" for language, text in blocks) + "\n")
    return run_page(page, folder)


def test_blocks_of_a_page_share_a_module(tmp_path: Path) -> None:
    """A later block sees what an earlier one defined, in a sync and an awaiting block alike; others are not run."""
    blocks = [
        ("python", "import asyncio\nx = 2"),
        ("python", "await asyncio.sleep(0)\nx += 1"),
        ("python", "x  # => 3\nif x:\n    x * 2  # => 6"),
        ("sh", "exit 1"),
        ("json", "{"),
    ]
    assert follow(tmp_path, *blocks) == 3


def test_a_named_block_is_saved_and_served_and_called(tmp_path: Path) -> None:
    """A block that opens with a file name can be served by a command, which answers until the page ends."""
    serve = (
        "# serve.py\nimport http.server\n\n"
        "if __name__ == '__main__':\n"
        "    http.server.test(http.server.SimpleHTTPRequestHandler, port=8000, bind='127.0.0.1')"
    )
    call = "import http.client\nc = http.client.HTTPConnection('127.0.0.1:8000')\n"
    call += "c.request('GET', '/serve.py')\nwith c.getresponse() as r:\n    r.status  # => 200\nc.close()"
    assert follow(tmp_path, ("python", serve), ("console", "$ python serve.py &"), ("python", call)) == 3


def test_console_compares_what_is_printed(tmp_path: Path) -> None:
    """Several commands of one block are compared each for itself, `...` standing for anything."""
    assert follow(tmp_path, ("console", "$ echo one\none\n$ printf 'two\\nthree'\ntwo\n...\n$ true")) == 1


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("python", "1 + 1  # => 3", "the page says 3, the value is 2"),
        ("python", "with open('/dev/null'):\n    'a'  # => 'b'", "the value is 'a'"),
        ("console", "$ echo one\ntwo", "`echo one` prints, with exit code 0:\none"),
        ("console", "$ echo one", "`echo one` prints"),
        ("console", "$ no-such-program &", "does not answer"),
    ],
)
def test_a_wrong_page_fails(tmp_path: Path, language: str, text: str, words: str) -> None:
    """What a page says and is not so is named."""
    with pytest.raises(WrongPageError, match=words.replace("+", r"\+")):
        follow(tmp_path, (language, text))


def test_an_error_names_the_line_of_the_page(tmp_path: Path) -> None:
    """A block that raises shows the page's own file and line."""
    with pytest.raises(ZeroDivisionError) as raised:
        follow(tmp_path, ("python", "x = 1"), ("python", "y = 2\nx / 0"))
    last = raised.traceback[-1]
    assert (Path(last.path).name, last.lineno + 1) == ("page.md", 9)
