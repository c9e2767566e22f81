"""A bench of storage with real files, and its refusal where memory would answer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gpuyard.catalog.fabric import storage_needs
from gpuyard.cli.measure import bench
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.measure.storage import run as storage_run
from gpuyard.measure.storage.cache import choose_cache_bypass, find_filesystem
from gpuyard.measure.storage.plan import StoragePlan, plan_storage
from gpuyard.measure.storage.records import StorageBench, Trial
from gpuyard.measure.storage.run import run_storage, write_dataset
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import Measurement
from gpuyard.temporary import remove_leftovers

MEMORY = Path("/dev/shm")  # noqa: S108  only its file system is of interest


def small(path: Path, **more: object) -> StoragePlan:
    options = {"count": 1, "seconds": 0.2, "own_bytes": 4 << 20, "batch": 1, "model": "resnet18"}
    return plan_storage(path, **{**options, **more})  # type: ignore[arg-type]


def test_mlperf_figures_are_the_published_ones(tmp_path: Path) -> None:
    plan = plan_storage(tmp_path, model="resnet50", gpu="h100-sxm5-80gb")
    assert (plan.batch, plan.compute_seconds, plan.min_utilization) == (400, 0.224, 0.9)
    # 400 records of 114,660 bytes in 0.224 s: 204.8 MB/s
    assert plan.batch_bytes / plan.compute_seconds / 1e6 == pytest.approx(204.8, abs=0.1)
    assert len(storage_needs()) == 6


@pytest.mark.parametrize("seconds", [0.0, float("nan"), float("inf")])
def test_a_trial_has_a_length(seconds: float, tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"time.*above 0"):
        plan_storage(tmp_path, seconds=seconds)


def test_other_gpus_take_the_predictors_time(tmp_path: Path) -> None:
    slow = plan_storage(tmp_path, model="resnet50", gpu="t4")
    fast = plan_storage(tmp_path, model="resnet50", gpu="h200-sxm5-141gb")
    assert slow.compute_seconds > fast.compute_seconds
    assert slow.record_bytes == pytest.approx(114_660, abs=1)
    assert "t4" in slow.source


def test_the_bench_reads_and_leaves_nothing_behind(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    result = run_storage(small(disk))
    assert list(disk.iterdir()) == []
    assert result.own_dataset
    assert result.dataset_bytes == 16 << 20  # 16 files of a block at least
    if result.cache == "none":  # a file system in memory
        assert (result.verdict, result.max_gpus, result.trials) == ("refused", None, ())
        return
    trial = next(trial for trial in result.trials if trial.gpus == 1)
    assert 0 < trial.utilization <= 1
    assert trial.passed == (trial.utilization >= 0.9)
    assert result.verdict == ("passes" if trial.passed else "starves")
    assert trial.seconds > 0
    assert trial.bytes_per_second > 0


def test_an_existing_data_set_is_read_and_kept(tmp_path: Path) -> None:
    data = tmp_path / "set"
    data.mkdir()
    (data / "a.bin").write_bytes(bytes(3 << 20))
    (data / "README").write_text("too small to be data")
    result = run_storage(small(tmp_path, data=data))
    assert not result.own_dataset
    assert result.dataset_bytes == 3 << 20
    assert (data / "a.bin").exists()


@pytest.mark.skipif(not MEMORY.is_dir(), reason="no /dev/shm")
def test_a_memory_file_system_is_rejected() -> None:
    assert find_filesystem(MEMORY) == "tmpfs"
    result = run_storage(small(MEMORY))
    assert result.verdict == "refused"
    assert result.max_gpus is None
    assert "tmpfs" in result.reason
    assert "memory" in result.reason
    assert not list(MEMORY.glob(".gpuyard-storage-*"))


def test_files_in_memory_are_never_measured_as_storage(tmp_path: Path) -> None:
    if MEMORY.is_dir():
        file = MEMORY / "gpuyard-test"
        file.write_bytes(b"x")
        try:
            assert choose_cache_bypass([file], 10**15) == "none"
        finally:
            file.unlink()


@given(limit=st.integers(0, 200), requested=st.integers(1, 20))
def test_the_search_finds_the_largest_that_passes(limit: int, requested: int) -> None:
    plan = plan_storage(Path(), count=requested)
    tried: list[int] = []

    def trial(gpus: int) -> Trial:
        tried.append(gpus)
        return Trial(
            gpus=gpus,
            utilization=1.0 if gpus <= limit else 0.5,
            passed=gpus <= limit,
            samples_per_second=1,
            bytes_per_second=1,
            seconds=1,
        )

    largest = max((t.gpus for t in storage_run._search(plan, trial) if t.passed), default=0)
    assert tried[0] == requested
    assert len(tried) == len(set(tried))
    assert largest == min(limit, 8 * requested)


def test_errors_name_the_directory_model_and_gpus(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="is not a directory"):
        plan_storage(tmp_path / "nowhere")
    with pytest.raises(UnknownName, match="did you mean 'unet3d'"):
        plan_storage(tmp_path, model="unet3")
    with pytest.raises(UserMistake, match=r"unet3d .*a100-sxm4-80gb and h100-sxm5-80gb"):
        plan_storage(tmp_path, model="unet3d", gpu="t4")


def test_dry_run_prints_the_plan(tmp_path: Path) -> None:
    arguments = ["storage", str(tmp_path), "--gpus", "4", "--dry-run", "--json"]
    plan = json.loads(CliRunner().invoke(bench.app, arguments, catch_exceptions=False).stdout)
    assert (plan["gpus"], plan["batch"], plan["compute_seconds"]) == (4, 400, 0.224)
    assert list(tmp_path.iterdir()) == []
    table = CliRunner().invoke(bench.app, arguments[:-1], catch_exceptions=False).stdout
    assert "400 samples of 115 kB every 224 ms" in table
    assert "1 GB in 16 files" in table
    assert "None" not in table and "1000000000" not in table


_HOLDS = """
import sys, time
from pathlib import Path
from gpuyard.measure.storage.run import write_dataset
with write_dataset(Path(sys.argv[1]), 1, 1, lambda _fraction: None):
    print("made", flush=True)
    time.sleep(600)
"""


def test_only_the_leftovers_of_a_killed_bench_are_removed(tmp_path: Path) -> None:
    foreign = tmp_path / ".gpuyard-storage-looks-like-ours"
    foreign.mkdir()
    (foreign / "0000.bin").touch()

    def start() -> "subprocess.Popen[str]":
        holder = subprocess.Popen(
            [sys.executable, "-c", _HOLDS, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "made\n"
        return holder

    killed, running = start(), start()
    with killed, running:
        assert len(list(tmp_path.glob(".gpuyard-storage-*"))) == 3
        killed.kill()
        killed.wait()
        remove_leftovers(tmp_path)
        assert len(list(tmp_path.glob(".gpuyard-storage-*"))) == 2
        running.kill()
    with write_dataset(tmp_path, 1, 1, lambda _fraction: None) as files:
        assert files[0].exists()
    assert list(tmp_path.iterdir()) == [foreign]


def test_a_bench_is_kept(tmp_path: Path, store: ResultsStore) -> None:
    data = tmp_path / "set"
    data.mkdir()
    (data / "a.bin").write_bytes(bytes(1 << 20))
    bench = run_storage(small(tmp_path, data=data))
    store.add(bench)
    assert store.records(StorageBench) == [bench]
    assert store.get(bench.id) == bench
    assert store.records(Measurement) == []
    again = run_storage(small(tmp_path, data=data))
    assert (again.key, again.id != bench.id) == (bench.key, True)
