"""Update the validation page's error tables, and draw one SVG per table into docs/images.

python scripts/picture_validation.py
"""

from pathlib import Path

from gpuyard.draw.validation import draw_validation_svg
from gpuyard.files import write_text
from gpuyard.predictor.validation import report
from gpuyard.report.answers.validation import format_markdown

DOCS = Path(__file__).parent.parent / "docs"
START, END = "<!-- errors: scripts/picture_validation.py -->\n", "<!-- /errors -->\n"


def main() -> None:
    result = report()
    for name, scored in result.training.tables.items():
        write_text(
            DOCS / "images" / f"validation-{name.replace('_', '-')}.svg",
            draw_validation_svg(scored),
        )
    page = DOCS / "validation-tables.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(START)
    after = rest.partition(END)[2]
    write_text(page, f"{before}{START}\n{format_markdown(result)}\n{END}{after}")


if __name__ == "__main__":
    main()
