"""Write examples/traces/pollux from the traces of the Pollux paper: what the simulator reads, to five digits.

    python scripts/import_pollux.py TRACES --workload 6 --output examples/traces/pollux

TRACES has the folders of applications and of workloads, as `simulator/` of github.com/petuum/adaptdl (branch
osdi21-artifact, Apache-2.0) has them.
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
WHOLE = {"placement", "local_bsz", "num_nodes", "num_replicas"}


def shortened(column: str, text: str) -> str:
    if column in WHOLE:
        return text
    return f"{float(text):.7g}" if column == "progress" else f"{float(text):.5g}"


def copy(source: Path, target: Path) -> None:
    columns = COLUMNS[source.stem.split("-")[0]]
    with source.open(encoding="utf-8", newline="") as read:
        rows = [[shortened(c, row[c]) for c in columns] for row in csv.DictReader(read)]
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8", newline="") as written:
        table = csv.writer(written, lineterminator="\n")
        table.writerows([columns, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--workload", type=int, default=6)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    for source in sorted(asked.traces.glob("*/*.csv")):
        if source.stem.split("-")[0] in COLUMNS:
            copy(source, asked.output / source.relative_to(asked.traces))
    name = f"workload-{asked.workload}.csv"
    shutil.copyfile(asked.traces / "workloads" / name, asked.output / name)


if __name__ == "__main__":
    main()
