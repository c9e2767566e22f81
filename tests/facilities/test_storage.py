"""Storage sizing against hand-worked numbers and against MLPerf Storage."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.catalog.fabric import storage_needs, storage_options
from gpuyard.errors import UserMistake
from gpuyard.facilities.storage import StorageRequest, size_storage


def build_request(**changes: float | int | None) -> StorageRequest:
    # 64 GPUs × 1,000 samples/s × 100 kB; 120 GB in 60 s; 10 TB and three checkpoints
    defaults: dict[str, float | int | None] = {
        "samples_per_second": 64_000.0,
        "bytes_per_sample": 100e3,
        "gpus": 64,
        "gpus_per_node": 8,
        "dataset_bytes": 10e12,
        "checkpoint_bytes": 120e9,
    }
    return StorageRequest(**(defaults | changes))  # type: ignore[arg-type]


def test_need_by_hand() -> None:
    need = build_request()
    assert need.read_bytes_per_second == 6.4e9
    assert need.read_bytes_per_second_per_gpu == 100e6
    assert need.write_bytes_per_second == 2e9
    assert need.capacity_bytes == 10.36e12
    # 60 s after every 30 min
    assert need.checkpoint_share == pytest.approx(60 / 1860)


def test_units_and_their_limit() -> None:
    sizing = size_storage(build_request())
    nfs = sizing.find_fit("nfs-server")
    # it reads 5.9 of 6.4 GB/s, and writes 1.5 of 2 GB/s
    assert not nfs.enough
    assert nfs.units == 2
    assert "0.5 GB/s of reads and 0.5 GB/s of writes" in nfs.missing
    assert nfs.largest_gpus == 59
    assert nfs.checkpoint_seconds == pytest.approx(80)
    flash = sizing.find_fit("nfs-flash")
    assert flash.enough and flash.units == 1 and flash.largest_gpus == 110
    # each machine reads its own 0.8 GB/s, but a drive of 3.84 TB cannot hold 10 TB
    drive = sizing.find_fit("local-nvme")
    assert not drive.enough and drive.limit == "capacity"
    assert drive.largest_gpus is None
    assert sizing.find_fit("local-nvme-raid").enough
    assert sizing.find_fit("local-nvme-raid").read_bytes_per_second == 8 * 45e9
    assert "nfs-flash" in sizing.verdict


def test_local_drives_can_be_too_slow_for_their_machine() -> None:
    # at 1 GB/s per GPU, a drive of 6.5 GB/s feeds 6 of 8
    drive = size_storage(build_request(bytes_per_sample=1e6, dataset_bytes=1e12)).find_fit(
        "local-nvme"
    )
    assert not drive.enough
    assert drive.largest_gpus == 6
    assert "1.5 GB/s of reads per machine" in drive.missing


@pytest.mark.parametrize(
    ("name", "megabytes"),
    [
        ("resnet50-h100", 204.8),
        ("resnet50-a100", 105.4),
        ("unet3d-h100", 3177.1),
        ("unet3d-a100", 1613.5),
        ("cosmoflow-h100", 808.1),
        ("cosmoflow-a100", 513.3),
    ],
)
def test_mlperf_storage(name: str, megabytes: float) -> None:
    need = storage_needs().get(name)
    assert need.read_bytes_per_second == pytest.approx(megabytes * 1e6, rel=1e-3)
    sizing = size_storage(
        StorageRequest(need.samples_per_second * 8, need.record_bytes, gpus=8, gpus_per_node=8)
    )
    for fit in sizing.fits:
        if fit.option.kind != "local":
            assert fit.largest_gpus is not None
            fed = fit.option.max_units * fit.option.read_bytes_per_second
            assert fit.largest_gpus * need.read_bytes_per_second <= fed
            assert (fit.largest_gpus + 1) * need.read_bytes_per_second > fed


@given(
    st.floats(1, 1e7), st.floats(1, 1e8), st.integers(1, 4096), st.floats(0, 1e13),
    st.floats(0, 1e16),
)  # fmt: skip
def test_units_are_enough_and_one_fewer_is_not(
    samples: float, size: float, gpus: int, checkpoint: float, dataset: float
) -> None:
    need = build_request(
        samples_per_second=samples,
        bytes_per_sample=size,
        gpus=gpus,
        checkpoint_bytes=checkpoint,
        dataset_bytes=dataset,
    )
    for fit in size_storage(need).fits:
        if fit.option.kind == "local":
            continue
        option = fit.option
        needs = (need.read_bytes_per_second, need.write_bytes_per_second, need.capacity_bytes)
        rates = (
            option.read_bytes_per_second,
            option.write_bytes_per_second,
            option.capacity_bytes,
        )
        assert all(fit.units * r >= w * (1 - 1e-9) for w, r in zip(needs, rates, strict=True))
        if fit.units > 1:
            assert any((fit.units - 1) * r < w for w, r in zip(needs, rates, strict=True))
        assert fit.enough == (fit.units <= option.max_units) == (fit.missing == "")


def test_checkpoint_must_finish_before_the_next() -> None:
    with pytest.raises(UserMistake, match=r"60 s .*30 s.*--checkpoint-every"):
        size_storage(build_request(checkpoint_seconds=60, checkpoint_every_seconds=30))


def test_checkpoint_time_must_be_positive() -> None:
    with pytest.raises(UserMistake, match=r"--checkpoint-time .*0 s"):
        size_storage(build_request(checkpoint_seconds=0))


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({}, r"10 TB.* 3 checkpoints$"),
        ({"checkpoints_kept": 1}, r"10 TB.* 1 checkpoint$"),
        ({"dataset_bytes": None}, r"^3 checkpoints; .*no dataset is counted"),
    ],
)
def test_purpose_of_the_capacity(changes: dict[str, float | None], facts: str) -> None:
    assert re.search(facts, build_request(**changes).capacity_purpose)


def test_catalog_has_open_source_and_proprietary_options() -> None:
    licenses = {option.license for option in storage_options()}
    assert {"open-source", "proprietary"} <= licenses
    products = (
        "nvme",
        "nfs",
        "beegfs",
        "lustre",
        "cephfs",
        "daos",
        "storage-scale",
        "weka",
        "vast",
    )
    assert all(any(name in option.id for option in storage_options()) for name in products)
