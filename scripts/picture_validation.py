"""Draw predicted against published for the docs: one SVG a table into docs/images.

python scripts/picture_validation.py
"""

from pathlib import Path

from gpuyard.files import write_text
from gpuyard.predict.validation import validate
from gpuyard.report.validation_page import scatter

IMAGES = Path(__file__).parent.parent / "docs/images"

if __name__ == "__main__":
    for name, scored in validate().tables.items():
        write_text(IMAGES / f"validation-{name.replace('_', '-')}.svg", scatter(scored))
