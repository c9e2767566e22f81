"""Draw the pictures of the docs' page on labs again, from the results that are kept for the tests.

python scripts/picture_lab.py

To measure again: gpuyard bench sweep examples/NAME.sweep.yaml --output tests/data/lab/NAME.jsonl
"""

from pathlib import Path

from gpuyard.catalog.specfiles import read_sweep
from gpuyard.files import write_text
from gpuyard.measure import read_results
from gpuyard.report.scaling import scaling_picture

ROOT = Path(__file__).parent.parent
SWEEPS = ("choke", "slices")


def main() -> None:
    for name in SWEEPS:
        title = read_sweep(ROOT / "examples" / f"{name}.sweep.yaml").name
        found = read_results([ROOT / "tests" / "data" / "lab" / f"{name}.jsonl"])
        picture = scaling_picture(found.measurements, title)
        write_text(ROOT / "docs" / "images" / f"lab-{name}.svg", picture)


if __name__ == "__main__":
    main()
