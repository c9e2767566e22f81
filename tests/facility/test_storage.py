"""What storage is asked for, by hand-worked numbers and by MLPerf Storage's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.catalog.fabric import storage_needs, storage_options
from gpuyard.errors import UserMistake
from gpuyard.facility.storage import StorageRequest, size_storage


def asked(**changed: float | int | None) -> StorageRequest:
    # 64 GPUs of 1,000 samples/s × 100 kB; 120 GB in 60 s; 10 TB and three checkpoints
    plain: dict[str, float | int | None] = {
        "samples_per_second": 64_000.0,
        "bytes_per_sample": 100e3,
        "gpus": 64,
        "gpus_per_node": 8,
        "dataset_bytes": 10e12,
        "checkpoint_bytes": 120e9,
    }
    return StorageRequest(**(plain | changed))  # type: ignore[arg-type]


def test_the_need_by_hand() -> None:
    need = asked()
    assert need.read_bytes_per_second == 6.4e9
    assert need.read_bytes_per_second_per_gpu == 100e6
    assert need.write_bytes_per_second == 2e9
    assert need.capacity_bytes == 10.36e12
    # 60 s after every 30 min
    assert need.checkpoint_share == pytest.approx(60 / 1860)


def test_units_and_what_limits_them() -> None:
    sizing = size_storage(asked())
    nfs = sizing.fit("nfs-server")
    # 6.4 GB/s of reads on 5.9, 2 GB/s of writes on 1.5
    assert not nfs.enough
    assert nfs.units == 2
    assert "0.5 GB/s of reads and 0.5 GB/s of writes" in nfs.missing
    assert nfs.largest_gpus == 59
    assert nfs.checkpoint_seconds == pytest.approx(80)
    flash = sizing.fit("nfs-flash")
    assert flash.enough and flash.units == 1 and flash.largest_gpus == 110
    # each machine reads its own 0.8 GB/s, but a drive of 3.84 TB does not hold 10 TB
    drive = sizing.fit("local-nvme")
    assert not drive.enough and drive.limit == "capacity"
    assert drive.largest_gpus is None
    assert sizing.fit("local-nvme-raid").enough
    assert sizing.fit("local-nvme-raid").read_bytes_per_second == 8 * 45e9
    assert "nfs-flash" in sizing.verdict


def test_local_drives_too_slow_for_their_machine() -> None:
    # 1 GB/s a GPU: a drive of 6.5 GB/s feeds 6 of 8
    drive = size_storage(asked(bytes_per_sample=1e6, dataset_bytes=1e12)).fit("local-nvme")
    assert not drive.enough
    assert drive.largest_gpus == 6
    assert "lacks 1.5 GB/s of reads per machine" in drive.missing


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
            fed = fit.option.most_units * fit.option.read_bytes_per_second
            assert fit.largest_gpus * need.read_bytes_per_second <= fed
            assert (fit.largest_gpus + 1) * need.read_bytes_per_second > fed


@given(
    st.floats(1, 1e7), st.floats(1, 1e8), st.integers(1, 4096), st.floats(0, 1e13),
    st.floats(0, 1e16),
)  # fmt: skip
def test_so_many_units_are_enough_and_one_less_is_not(
    samples: float, size: float, gpus: int, checkpoint: float, dataset: float
) -> None:
    need = asked(
        samples_per_second=samples,
        bytes_per_sample=size,
        gpus=gpus,
        checkpoint_bytes=checkpoint,
        dataset_bytes=dataset,
    )
    for fit in size_storage(need).fits:
        if fit.option.kind == "local":
            continue
        one = fit.option
        wanted = (need.read_bytes_per_second, need.write_bytes_per_second, need.capacity_bytes)
        rates = (one.read_bytes_per_second, one.write_bytes_per_second, one.capacity_bytes)
        assert all(fit.units * r >= w * (1 - 1e-9) for w, r in zip(wanted, rates, strict=True))
        if fit.units > 1:
            assert any((fit.units - 1) * r < w for w, r in zip(wanted, rates, strict=True))
        assert fit.enough == (fit.units <= one.most_units) == (fit.missing == "")


def test_a_checkpoint_must_be_done_before_the_next() -> None:
    with pytest.raises(UserMistake, match="can't be written every"):
        size_storage(asked(checkpoint_seconds=60, checkpoint_every_seconds=30))


def test_a_checkpoint_takes_some_time() -> None:
    with pytest.raises(UserMistake, match="more than 0 s"):
        size_storage(asked(checkpoint_seconds=0))


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        ({}, "the dataset of 10 TB and 3 checkpoints"),
        ({"checkpoints_kept": 1}, "the dataset of 10 TB and 1 checkpoint"),
        (
            {"dataset_bytes": None},
            "3 checkpoints; the workload names no dataset, so none is counted",
        ),
    ],
)
def test_what_the_capacity_is_for(changed: dict[str, float | None], held: str) -> None:
    assert asked(**changed).held == held


def test_the_table_has_both_open_source_and_proprietary() -> None:
    licences = {option.licence for option in storage_options()}
    assert {"open-source", "proprietary"} <= licences
    wanted = ("nvme", "nfs", "beegfs", "lustre", "cephfs", "daos", "storage-scale", "weka", "vast")
    assert all(any(name in option.id for option in storage_options()) for name in wanted)
