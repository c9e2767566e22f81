"""Write the reference pages from the code: write_reference.py [--check].

With --check, the script writes nothing; its exit status is 1 if a page is missing or outdated.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from gpuyard.files import write_text
from reference.commands import render_commands
from reference.python import render_python
from reference.specs import render_specs

PAGES = Path(__file__).parents[1] / "docs" / "reference"


def render_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every page."""
    yield from render_commands()
    yield "specs.md", render_specs()
    yield "python.md", render_python()


def main() -> None:
    outdated = []
    for name, text in render_pages():
        page = PAGES / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            outdated.append(page.relative_to(PAGES.parents[1]).as_posix())
            if "--check" not in sys.argv:
                write_text(page, text)
    for path in outdated:
        sys.stdout.write(f"{path} {'is outdated' if '--check' in sys.argv else 'written'}\n")
    if outdated and "--check" in sys.argv:
        sys.exit("run `make reference`")


if __name__ == "__main__":
    main()
