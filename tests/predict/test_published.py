"""The published tables that ship: what is in them, and what each row may be predicted from."""

import csv
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpuyard.catalog
from gpuyard.catalog import gpus
from gpuyard.catalog.published import (
    JUDGE_TABLES,
    LAB_TABLE,
    SIZING_TABLES,
    TRAINING_TABLES,
    all_reduce_rows,
    published,
    published_profile,
    published_sources,
    single_gpu_rows,
)
from gpuyard.errors import UnknownName
from gpuyard.predict.constants import fitted
from gpuyard.predict.validation.cases import SYNTHETIC_BACKWARD, compiled
from gpuyard.workloads.synthetic import FORWARD_SHARE

EVERY_TABLE = [*TRAINING_TABLES, *SIZING_TABLES, *JUDGE_TABLES]
DATA = Path(gpuyard.catalog.__file__).parent / "data" / "published"
# rows that can be predicted; a change of the data or of a rule has to be meant
COUNTS = {
    "tf_benchmarks_2017": 156, "pollux_t4": 7046, "lambda": 944, "mlperf": 79, "horovod": 9,
    "dlperf": 374, "nvidia_examples": 245,
}  # fmt: skip

# of the sources in no fit, by source
JUDGES = {
    "Ray p3dn DDP": 12, "Ray p3dn Horovod": 6, "Ray p3 DDP": 6, "Ray p3 Horovod": 6,
    "Paik V100": 6, "Paik A100": 6, "FlagPerf PyTorch": 7,
    "EKS Horovod": 7, "Liaw Horovod": 5, "Kempner DDP": 2, "Baskerville Lightning": 5,
    "MareNostrum DDP": 9, "MareNostrum TensorFlow": 4, "HAL apex": 8,
    "NERSC DDP": 18, "Moyix 3090": 7, "Rossum M60": 3,
}  # fmt: skip


def cells(table: str) -> list[dict[str, str]]:
    lines = (DATA / f"{table}.csv").read_text(encoding="utf-8").splitlines()
    every = {}
    if lines[0].startswith("#"):
        pairs = lines.pop(0).removeprefix("# every row: ").split(", ")
        every = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
    return [every | row for row in csv.DictReader(lines)]


@pytest.mark.parametrize("table", TRAINING_TABLES)
def test_every_row_is_predicted_an_anchor_or_left_out_with_a_reason(table: str) -> None:
    found = published(table)
    assert len(found.rows) == COUNTS[table]
    left_out = sum(rows for _, rows in found.skipped)
    assert len(found.rows) + found.anchors + left_out == len(cells(table))
    assert all(reason for reason, _ in found.skipped)


def test_sources_that_judge_have_no_part_in_what_they_judge() -> None:
    rows = Counter(row.source for table in JUDGE_TABLES for row in published(table).rows)
    assert rows == JUDGES
    known = (*TRAINING_TABLES, *SIZING_TABLES)
    assert not {row.source for table in known for row in published(table).rows} & set(rows)
    for table in JUDGE_TABLES:
        found = published(table)
        left_out = sum(count for _, count in found.skipped)
        assert len(found.rows) + found.anchors + left_out == len(cells(table))


def test_a_thousand_rows_and_more_can_be_predicted() -> None:
    assert sum(len(published(table).rows) for table in TRAINING_TABLES) >= 1000


@pytest.mark.parametrize("table", EVERY_TABLE)
def test_an_anchor_is_the_smallest_system_of_its_series(table: str) -> None:
    least: defaultdict[tuple[str, ...], int] = defaultdict(lambda: 10**9)
    for row in cells(table):
        if not row.get("skip"):
            key = (row["series"], row["model"], row["precision"], row["strategy"])
            least[key] = min(least[key], int(row["gpus"]))
    for published_row in published(table).rows:
        of = published_row
        key = (of.series, of.model, of.precision, of.strategy)
        assert of.anchor.gpus == least[key] < of.gpus


@pytest.mark.parametrize("table", ["tf_benchmarks_2017", "pollux_t4", "lambda", "horovod"])
def test_where_one_gpu_was_published_it_is_the_anchor(table: str) -> None:
    for row in published(table).rows:
        assert (row.anchor.gpus, row.anchor.nodes) == (1, 1)
        assert row.anchor.batch_per_gpu == row.batch_per_gpu


@pytest.mark.parametrize("table", EVERY_TABLE)
def test_rows_name_what_the_catalog_has(table: str) -> None:
    for row in published(table).rows:
        assert row.machines.gpu in gpus()
        profile = published_profile(row.model)
        assert profile.source
        assert 0.98 < sum(x.parameters for x in profile.layers) / profile.parameters <= 1.0
        assert row.machines.network is not None or row.nodes == 1


def test_every_table_names_its_source_and_what_is_not_known() -> None:
    assert set(published_sources()) == {
        *TRAINING_TABLES,
        *SIZING_TABLES,
        *JUDGE_TABLES,
        "allreduce",
        "lab",
    }
    for table, source in published_sources().items():
        assert ("gpuyard bench sweep" if table == "lab" else "https://") in source.source
        assert source.unknown


def test_the_tables_beside_the_training_tables() -> None:
    assert all(row.samples_per_second > 0 for row in single_gpu_rows())
    assert len({row.gpu for row in single_gpu_rows()}) > 15
    assert {row.series for row in all_reduce_rows()} >= {"vTrain v100", "vTrain a100"}


def test_an_unknown_table_gets_the_closest_name() -> None:
    with pytest.raises(UnknownName, match="lambda"):
        published("lamda")


def test_the_lab_is_what_was_recorded() -> None:
    script = Path(__file__).parents[2] / "scripts" / "import_lab.py"
    done = subprocess.run([sys.executable, script, "--check"], check=False)
    assert done.returncode == 0, "run: python scripts/import_lab.py"


def test_a_synthetic_gpu_is_predicted_as_it_works() -> None:
    assert pytest.approx(1 - FORWARD_SHARE) == SYNTHETIC_BACKWARD
    lab = [row for row in published(LAB_TABLE).rows if row.strategy == "ddp-synthetic"]
    for cases in compiled(lab):
        with_more_hosts = replace(fitted(), tcp_host_bytes_per_second=1e9, slowdown=0.5)
        assert np.array_equal(
            cases.predicted(fitted()).step_seconds, cases.predicted(with_more_hosts).step_seconds
        )
