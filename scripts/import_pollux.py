"""Write examples/traces/pollux from the traces of the Pollux paper, with the columns that the simulator reads, to five digits.

    python scripts/import_pollux.py TRACES --workload 6 --output examples/traces/pollux

TRACES contains the folders of applications and workloads from `simulator/` in github.com/petuum/adaptdl (branch
osdi21-artifact, Apache-2.0).
"""

import argparse
import csv
import shutil
from pathlib import Path

COLUMNS = {
    "placements": ("placement", "local_bsz", "step_time", "sync_time"),
    "scalability": ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"),
    "validation": ("progress", "grad_sqr", "grad_var"),
}
INTEGER_COLUMNS = {"placement", "local_bsz", "num_nodes", "num_replicas"}


def shorten_number(column: str, text: str) -> str:
    if column in INTEGER_COLUMNS:
        return text
    return f"{float(text):.7g}" if column == "progress" else f"{float(text):.5g}"


def copy_columns(source: Path, target: Path) -> None:
    columns = COLUMNS[source.stem.split("-")[0]]
    with source.open(encoding="utf-8", newline="") as file:
        rows = [[shorten_number(c, row[c]) for c in columns] for row in csv.DictReader(file)]
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([columns, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--workload", type=int, default=6)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    for source in sorted(options.traces.glob("*/*.csv")):
        if source.stem.split("-")[0] in COLUMNS:
            copy_columns(source, options.output / source.relative_to(options.traces))
    name = f"workload-{options.workload}.csv"
    shutil.copyfile(options.traces / "workloads" / name, options.output / name)


if __name__ == "__main__":
    main()
