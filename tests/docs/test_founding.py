"""gpuyard's column in docs/founding.md matches the current predictions."""

from pathlib import Path

import pytest

from gpuyard.catalog.published import LAB_TABLE
from gpuyard.catalog.specfiles import read_workload
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor import Prediction, predict_cluster
from gpuyard.predictor.constants import load_tuning
from gpuyard.predictor.validation.score import score_table
from gpuyard.specs import Cluster, Dataset, MachineSpec, Network, Storage, StrategyName, Workload
from gpuyard.units import format_bytes
from gpuyard.workloads import profile_model

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "founding.md").read_text(encoding="utf-8")


def predicted(
    model: str | Workload,
    cluster: str | Cluster,
    gpus: int,
    *,
    batches: tuple[int, ...] = (64,),
    strategy: StrategyName = "ddp",
    per_node: int | None = None,
) -> tuple[Prediction, ...]:
    spec = read_workload(model, ROOT / "examples") if isinstance(model, str) else model
    place = read_cluster(cluster, ROOT / "examples") if isinstance(cluster, str) else cluster
    return predict_cluster(
        spec,
        profile_model(spec),
        place,
        [gpus],
        batches=batches,
        strategy=strategy,
        gpus_per_node=per_node,
    ).predictions


def row(case: str) -> str:
    (match,) = (line for line in PAGE.splitlines() if line.startswith(f"| {case}"))
    return match.split("|")[3]


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f}%"


def test_spoken_digits() -> None:
    """The global batches on four GPUs are 10 (as 12), 20, 100, 200, and 600."""
    machine = MachineSpec(gpu="gtx-1080-ti", gpus=4, cores=8)
    for model, batches, choke in (
        ("linear", (3, 5, 25, 50, 150), "pcie"),
        ("conv", (5, 25, 50, 150), "gpu"),
    ):
        predictions = predicted(
            f"spoken-digits-{model}.workload.yaml",
            Cluster(name="4 × GTX 1080 Ti", machine=machine),
            4,
            batches=batches,
            strategy="dataparallel",
        )
        assert {p.choke for p in predictions} == {choke}
        shown = row(f"spoken digits, {model}")
        least, most = (percent(f(p.scaling_efficiency for p in predictions)) for f in (min, max))
        assert f"{least} to {most} efficient" in shown
        if model == "conv":
            spec = read_workload("spoken-digits-conv.workload.yaml", ROOT / "examples")
            place = Cluster(name="4 × GTX 1080 Ti", machine=machine)
            conv = predict_cluster(spec, profile_model(spec), place, [4], strategy="dataparallel")
            assert row("the same, batch per GPU at which") == f" {conv.saturating_batch} "
        if model == "linear":
            twenty = predictions[1]
            assert [move.name for move in twenty.moves] == [
                "samples out", "parameters out", "outputs back", "gradients back",
            ]  # fmt: skip
            assert twenty.epoch_bytes == 100 * sum(move.size_bytes for move in twenty.moves)
            moved = format_bytes(twenty.epoch_bytes)
            assert moved in row("the same, moved in an epoch at a batch of 20")


def test_hpe_apollo() -> None:
    def rate(gpus: int, per_node: int) -> float:
        (p,) = predicted(
            "resnet50", "apollo.cluster.yaml", gpus, per_node=per_node, strategy="horovod"
        )
        return p.samples_per_second

    (eight,) = predicted("resnet50", "apollo.cluster.yaml", 8, strategy="horovod")
    assert percent(eight.scaling_efficiency) in row("ResNet-50, HPE")
    apart = percent(rate(16, 8) / rate(16, 4) - 1, 1)
    assert apart in row("the same, 16 GPUs")
    assert percent(rate(4, 4) / rate(4, 2) - 1, 1) in row("the same, 4 GPUs")
    assert f"+{percent(rate(16, 8) / rate(8, 8) - 1)}" in row("the same, from 8 to 16")


def test_hpe_apollo_with_real_images() -> None:
    """Find the storage and CPUs that would explain the step from 8 to 16 GPUs."""

    def real(
        gpus: int, per_node: int, *, read: str = "30 GB/s", cores: int | None = None
    ) -> Prediction:
        images = Dataset.model_validate(
            {"samples": 1_281_167, "bytes_per_sample": "115 kB", "preprocess": "8 ms"}
        )
        spec = read_workload("resnet50").model_copy(
            update={"precision": "fp16", "dataset": images.model_copy(update={"input_workers": 64})}
        )
        apollo = read_cluster("apollo.cluster.yaml", ROOT / "examples")
        assert isinstance(apollo.machine, MachineSpec)
        place = apollo.model_copy(
            update={
                "machine": apollo.machine.model_copy(update={"cores": cores}),
                "storage": Storage.model_validate({"read": read}),
            }
        )
        return predicted(spec, place, gpus, per_node=per_node, strategy="horovod")[0]

    def rate(gpus: int, per_node: int, *, read: str = "30 GB/s", cores: int | None = None) -> float:
        return real(gpus, per_node, read=read, cores=cores).samples_per_second

    shown = row("the same in fp16, from 8 to 16")
    assert f"+{percent(rate(16, 8) / rate(8, 8) - 1, 1)}" in shown
    assert percent(rate(4, 4) / rate(4, 2) - 1, 1) in row("the same in fp16, 4 GPUs")
    slow = "1.15 GB/s"
    assert f"+{percent(rate(16, 8, read=slow) / rate(8, 8, read=slow) - 1)}" in row(
        "the same in fp16, storage that reads 1.15"
    )
    mid = "1.185 GB/s"

    def at_16(per_node: int) -> float:
        return rate(16, per_node, read=mid, cores=38)

    together = row("the same in fp16, 8 GPUs as 2 × 4, 38 cores")
    assert f"{percent(at_16(4) / at_16(8) - 1, 1)} apart" in together
    assert f"+{percent(at_16(8) / rate(8, 4, read=mid, cores=38) - 1)}" in together
    few = row("the same in fp16, 40 cores")
    assert f"+{percent(rate(16, 8, cores=40) / rate(8, 8, cores=40) - 1)}" in few
    assert f"{percent(rate(16, 8, cores=40) / rate(16, 4, cores=40) - 1, 1)}".lstrip("-") in few


def test_slices_nodes() -> None:
    for rate in ("1 Gbit/s", "10 Gbit/s"):
        cluster = Cluster(
            name="10 nodes",
            nodes=10,
            machine=MachineSpec(gpu="gtx-1080-ti", gpus=1),
            network=Network.model_validate({"rate": rate}),
        )
        shown = row(f"SLICES, ResNet-50, 10 nodes over {rate}")
        predictions = predicted("resnet50", cluster, 10, batches=(32, 64, 96), strategy="horovod")
        assert [percent(p.scaling_efficiency) for p in predictions] == [
            part.strip() for part in shown.split(",")
        ]


def test_slices_on_one_host() -> None:
    host = MachineSpec(gpu="gtx-1080-ti", gpus=10, topology="single-root")
    containers = Cluster(
        name="10 containers",
        nodes=10,
        machine=MachineSpec(gpu="gtx-1080-ti", gpus=1),
        network=Network.model_validate({"rate": "5.67 Gbit/s"}),
    )
    assert load_tuning().tcp_host_bytes_per_second / 10 == pytest.approx(5.67e9 / 8, rel=0.01)
    for cluster, case in (
        (Cluster(name="one host", machine=host), "SLICES, one host"),
        (containers, "SLICES, the same host"),
    ):
        predictions = predicted("resnet50", cluster, 10, batches=(32, 64, 96), strategy="horovod")
        shares = [percent(p.scaling_efficiency) for p in predictions]
        assert ", ".join(shares) in row(case)


def test_slices_in_the_lab() -> None:
    predictions = score_table(LAB_TABLE, load_tuning()).rows
    for gbit, start in ((1, "SLICES in [our lab]"), (10, "SLICES in our lab")):
        ten = sorted(
            (
                p
                for p in predictions
                if p.row.model == "resnet50"
                and p.row.nodes == 10
                and (network := p.row.machines.network) is not None
                and network.rate == gbit * 1e9 / 8
            ),
            key=lambda p: p.row.batch_per_gpu,
        )
        assert [p.row.batch_per_gpu for p in ten] == [32, 64, 96]
        ideal = [10 * p.row.anchor.batch_per_gpu / p.row.anchor.step_seconds for p in ten]
        predicted_shares = [
            percent(p.samples_per_second / i) for p, i in zip(ten, ideal, strict=True)
        ]
        measured = [percent(p.row.samples_per_second / i) for p, i in zip(ten, ideal, strict=True)]
        (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {start}"))
        assert f"measured there: {', '.join(measured)} | {', '.join(predicted_shares)} |" in line


def test_horovod_at_128_gpus() -> None:
    def one(model: str, link: str, strategy: StrategyName = "horovod") -> Prediction:
        cluster = Cluster(
            name="32 servers",
            nodes=32,
            machine=MachineSpec(gpu="p100-pcie-16gb", gpus=4),
            network=Network(link=link),
        )
        return predicted(model, cluster, 128, strategy=strategy)[0]

    tcp, rdma = "ethernet-25g", "roce-25g"
    assert percent(one("resnet101", tcp).scaling_efficiency) in row("Horovod, ResNet-101, 128")
    assert percent(one("inception-v3", tcp).scaling_efficiency) in row("Horovod, Inception")
    assert percent(one("resnet101", rdma).scaling_efficiency) in row("Horovod, ResNet-101, RDMA")
    gain = one("vgg16", rdma).samples_per_second / one("vgg16", tcp).samples_per_second - 1
    assert f"+{percent(gain)}" in row("Horovod, VGG-16")
    served = one("resnet101", tcp, "parameter-server")
    assert percent(served.scaling_efficiency) in row("parameter servers")
