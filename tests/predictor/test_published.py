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
    HELD_OUT_TABLES,
    LAB_TABLE,
    SIZING_TABLES,
    TRAINING_TABLES,
    all_reduce_rows,
    published_profile,
    published_sources,
    published_table,
    single_gpu_rows,
)
from gpuyard.errors import UnknownName
from gpuyard.predictor.constants import load_tuning
from gpuyard.predictor.validation.cases import SYNTHETIC_BACKWARD, compile_cases
from gpuyard.workloads.synthetic import FORWARD_SHARE

EVERY_TABLE = [*TRAINING_TABLES, *SIZING_TABLES, *HELD_OUT_TABLES]
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
    table_rows = published_table(table)
    assert len(table_rows.rows) == COUNTS[table]
    left_out = sum(rows for _, rows in table_rows.skipped)
    assert len(table_rows.rows) + table_rows.anchors + left_out == len(cells(table))
    assert all(reason for reason, _ in table_rows.skipped)


def test_held_out_sources_are_in_no_fit() -> None:
    rows = Counter(row.source for table in HELD_OUT_TABLES for row in published_table(table).rows)
    assert rows == JUDGES
    all_tables = (*TRAINING_TABLES, *SIZING_TABLES)
    assert not {row.source for table in all_tables for row in published_table(table).rows} & set(
        rows
    )
    for table in HELD_OUT_TABLES:
        table_rows = published_table(table)
        left_out = sum(count for _, count in table_rows.skipped)
        assert len(table_rows.rows) + table_rows.anchors + left_out == len(cells(table))


def test_a_thousand_rows_and_more_can_be_predicted() -> None:
    assert sum(len(published_table(table).rows) for table in TRAINING_TABLES) >= 1000


@pytest.mark.parametrize("table", EVERY_TABLE)
def test_an_anchor_is_the_smallest_system_of_its_series(table: str) -> None:
    least: defaultdict[tuple[str, ...], int] = defaultdict(lambda: 10**9)
    for row in cells(table):
        if not row.get("skip"):
            key = (row["series"], row["model"], row["precision"], row["strategy"])
            least[key] = min(least[key], int(row["gpus"]))
    for published_row in published_table(table).rows:
        of = published_row
        key = (of.series, of.model, of.precision, of.strategy)
        assert of.anchor.gpus == least[key] < of.gpus


@pytest.mark.parametrize("table", ["tf_benchmarks_2017", "pollux_t4", "lambda", "horovod"])
def test_a_published_one_gpu_figure_is_the_anchor(table: str) -> None:
    for row in published_table(table).rows:
        assert (row.anchor.gpus, row.anchor.nodes) == (1, 1)
        assert row.anchor.batch_per_gpu == row.batch_per_gpu


@pytest.mark.parametrize("table", EVERY_TABLE)
def test_rows_use_catalog_names(table: str) -> None:
    for row in published_table(table).rows:
        assert row.machines.gpu in gpus()
        profile = published_profile(row.model)
        assert profile.source
        assert 0.98 < sum(x.parameters for x in profile.layers) / profile.parameters <= 1.0
        assert row.machines.network is not None or row.nodes == 1


def test_every_table_names_its_source_and_its_unknowns() -> None:
    assert set(published_sources()) == {
        *TRAINING_TABLES,
        *SIZING_TABLES,
        *HELD_OUT_TABLES,
        "allreduce",
        "collectives",
        "lab",
        "single_gpu",
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
        published_table("lamda")


def test_lab_rows_match_the_recorded_results() -> None:
    script = Path(__file__).parents[2] / "scripts" / "import_lab.py"
    done = subprocess.run([sys.executable, script, "--check"], check=False)
    assert done.returncode == 0, "run: python scripts/import_lab.py"


def test_the_prediction_of_a_synthetic_gpu_matches_its_behavior() -> None:
    assert pytest.approx(1 - FORWARD_SHARE) == SYNTHETIC_BACKWARD
    lab = [row for row in published_table(LAB_TABLE).rows if row.strategy == "ddp-synthetic"]
    for cases in compile_cases(lab):
        with_more_hosts = replace(load_tuning(), tcp_host_bytes_per_second=1e9, slowdown=0.5)
        assert np.array_equal(
            cases.predict(load_tuning()).step_seconds,
            cases.predict(with_more_hosts).step_seconds,
        )
