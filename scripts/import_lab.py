"""Convert recorded lab sweeps to the table that `gpuyard validate` predicts.

    gpuyard bench sweep examples/slices.sweep.yaml --output tests/data/lab/slices.jsonl
    gpuyard bench sweep examples/choke.sweep.yaml --output tests/data/lab/choke.jsonl
    python scripts/import_lab.py            # writes the table
    python scripts/import_lab.py --check    # exits 1 if the table is outdated

The sweeps need root and a quiet machine.
"""

import argparse
import csv
import io
import sys
from pathlib import Path

from gpuyard.files import write_text
from gpuyard.measure.reading import read_results
from gpuyard.measure.training.records import Measurement

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "data" / "lab"
TABLE = ROOT / "src/gpuyard/catalog/data/published/lab.csv"
COLUMNS = (
    "series", "model", "gpu", "topology", "peer", "nodes", "gpus", "batch", "precision",
    "gradient_bits", "strategy", "network", "samples_per_second",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check: bool = parser.parse_args().check
    text = build_table()
    if check:
        return 0 if TABLE.read_text(encoding="utf-8") == text else 1
    write_text(TABLE, text)
    return 0


def build_table() -> str:
    """Build the CSV text of all recorded sweeps in the columns of the published tables."""
    rows = [
        build_row(recorded.stem, measurement)
        for recorded in sorted(RECORDED.glob("*.jsonl"))
        for measurement in read_results([recorded]).select(Measurement)
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda r: [str(v).zfill(9) for v in r.values()]))
    return text.getvalue()


def build_row(sweep: str, run: Measurement) -> dict[str, object]:
    gbit = (run.place.link_bytes_per_second or 0.0) * 8 / 1e9
    return {
        # one node does not use the link, but each lab measures it as the baseline of its series
        "series": f"{sweep} {gbit:g} Gbit/s",
        "model": run.workload,  # both sweeps name their workloads after the catalog models
        "gpu": run.synthetic.gpu if run.synthetic else "",
        "topology": "workstation",
        "peer": 1,
        "nodes": run.workers,
        "gpus": run.workers,
        "batch": run.batch_per_worker,
        "precision": "fp32",
        "gradient_bits": 32,
        "strategy": f"{run.strategy}-{'synthetic' if run.synthetic else 'cpu'}",
        "network": f"tcp {gbit:g} 1" if run.workers > 1 else "",
        "samples_per_second": f"{run.samples_per_second:.5g}",
    }


if __name__ == "__main__":
    sys.exit(main())
