"""Every page of the documentation does what it says. Run by `nox -s docs`, since it needs the installed command."""

from pathlib import Path

import pytest

from tests.docs.blocks import run_page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_page(page: Path, tmp_path: Path) -> None:
    """The blocks of a page run from top to bottom; the README has some."""
    count = run_page(page, tmp_path)
    assert count or page.name != "README.md"
