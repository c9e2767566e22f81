"""Our column of docs/founding.md is what the predictor says today."""

from pathlib import Path

from gpuyard.catalog.specfiles import read_cluster, read_workload
from gpuyard.predict import Prediction, predict_cluster
from gpuyard.specs import Cluster, MachineSpec, Network, Strategy
from gpuyard.workloads import profile_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "founding.md").read_text(encoding="utf-8")


def predicted(
    model: str,
    cluster: str | Cluster,
    gpus: int,
    *,
    batches: tuple[int, ...] = (64,),
    strategy: Strategy = "ddp",
    per_node: int | None = None,
) -> tuple[Prediction, ...]:
    spec = read_workload(model, ROOT / "examples")
    place = read_cluster(cluster, ROOT / "examples") if isinstance(cluster, str) else cluster
    return predict_cluster(
        spec,
        profile_of(spec),
        place,
        [gpus],
        batches=batches,
        strategy=strategy,
        gpus_per_node=per_node,
    ).predictions


def row(case: str) -> str:
    (found,) = (line for line in PAGE.splitlines() if line.startswith(f"| {case}"))
    return found.split("|")[3]


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def test_spoken_digits() -> None:
    for model, batches, choke in (
        ("linear", (10, 20, 50, 200, 600), "pcie"),
        ("conv", (20, 50, 200, 600), "gpu"),
    ):
        made = predicted(
            f"spoken-digits-{model}.workload.yaml",
            "workstation.cluster.yaml",
            4,
            batches=batches,
            strategy="dataparallel",
        )
        assert {p.choke for p in made} == {choke}
        shown = row(f"spoken digits, {model}")
        least, most = (percent(f(p.scaling_efficiency for p in made)) for f in (min, max))
        assert f"{least} to {most} efficient" in shown


def test_hpe_apollo() -> None:
    def rate(gpus: int, per_node: int) -> float:
        (p,) = predicted("resnet50", "apollo.cluster.yaml", gpus, per_node=per_node)
        return p.samples_per_second

    (eight,) = predicted("resnet50", "apollo.cluster.yaml", 8)
    assert percent(eight.scaling_efficiency) in row("ResNet-50, HPE")
    apart = percent(rate(16, 8) / rate(16, 4) - 1, 1)
    assert apart in row("the same, 16 GPUs")
    assert percent(rate(4, 4) / rate(4, 2) - 1, 1) in row("the same, 4 GPUs")
    assert f"+{percent(rate(16, 8) / rate(8, 8) - 1)}" in row("the same, from 8 to 16")


def test_horovod_at_128_gpus() -> None:
    def one(model: str, link: str, strategy: Strategy = "horovod") -> Prediction:
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
