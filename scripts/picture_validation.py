"""Update the error tables of the validation pages, and draw one SVG per table into docs/images.

python scripts/picture_validation.py
"""

from pathlib import Path

from gpuyard.draw.validation import draw_validation_svg
from gpuyard.files import write_text
from gpuyard.predictor.validation import report
from gpuyard.report.answers.validation import format_markdown, format_threads_markdown

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    result = report()
    for name, scored in result.training.tables.items():
        write_text(
            DOCS / "images" / f"validation-{name.replace('_', '-')}.svg",
            draw_validation_svg(scored),
        )
    replace_section(DOCS / "validation-tables.md", "errors", format_markdown(result))
    replace_section(DOCS / "validation-collectives.md", "threads", format_threads_markdown(result))


def replace_section(page: Path, name: str, text: str) -> None:
    start, end = f"<!-- {name}: scripts/picture_validation.py -->\n", f"<!-- /{name} -->\n"
    before, _, rest = page.read_text(encoding="utf-8").partition(start)
    write_text(page, f"{before}{start}\n{text}\n{end}{rest.partition(end)[2]}")


if __name__ == "__main__":
    main()
