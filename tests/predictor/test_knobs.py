"""Every knob of a cluster and a workload moves the prediction the way that it says."""

from collections.abc import Mapping

import pytest

from gpuyard.catalog.specfiles import read_workload
from gpuyard.predictor import Prediction, predict_cluster
from gpuyard.specs import Cluster, KnownThroughput, MachineSpec, Network, StrategyName
from gpuyard.workloads import profile_model


def predicted(
    network: Mapping[str, object] | None = None,
    *,
    gpus: int = 8,
    in_machine: int = 4,
    model: str = "vgg16",
    strategy: StrategyName = "ddp",
    precision: str = "fp32",
    batch: int = 32,
    measured: bool = False,
) -> Prediction:
    cluster = Cluster(
        name="any",
        nodes=gpus // in_machine,
        machine=MachineSpec(gpu="gtx-1080-ti" if precision == "fp32" else "t4", gpus=in_machine),
        network=Network.model_validate(network) if network else None,
    )
    spec = read_workload(model).model_copy(update={"precision": precision})
    if measured:
        figure = KnownThroughput(gpu="gtx-1080-ti", batch_per_gpu=batch, samples_per_second=120.0)
        spec = spec.model_copy(update={"measured": (figure,)})
    result = predict_cluster(
        spec, profile_model(spec), cluster, [gpus], batches=(batch,), strategy=strategy
    )
    return result.predictions[0]


def exposed(network: Mapping[str, object]) -> float:
    return predicted(network).step.exposed_communication_seconds


def test_oversubscription_is_as_bad_as_a_slower_network() -> None:
    halved = exposed({"rate": "20 Gbit/s", "oversubscription": 2})
    assert halved == pytest.approx(exposed({"rate": "10 Gbit/s"}))


def test_rails_add_up() -> None:
    one, two = {"rate": "10 Gbit/s"}, {"rate": "5 Gbit/s", "rails": 2}
    rdma = {"protocol": "rdma"}
    assert exposed({**two, **rdma}) == pytest.approx(exposed({**one, **rdma}))
    # threads of each port copy its TCP traffic
    assert exposed(two) < exposed(one)


def test_more_flows_lift_a_cap_on_one() -> None:
    capped = {"rate": "100 Gbit/s", "per_flow": "5 Gbit/s"}
    assert exposed({**capped, "flows": 4}) < exposed(capped) / 2


def test_a_slow_hop_costs_more_with_many_buckets() -> None:
    fast, slow = ({"rate": "10 Gbit/s", "latency": latency} for latency in ("1 us", "5 ms"))
    assert exposed(slow) > exposed(fast)


def test_rdma_beats_tcp_on_the_same_wire() -> None:
    wire = {"rate": "25 Gbit/s"}
    assert exposed({**wire, "protocol": "rdma"}) < exposed({**wire, "protocol": "tcp"})


def test_dataparallel_pays_for_inputs_and_for_its_one_process() -> None:
    few = predicted(gpus=4, strategy="dataparallel", batch=1, model="resnet152")
    many = predicted(gpus=4, strategy="dataparallel", batch=256, model="resnet152")
    profile = profile_model(read_workload("resnet152"))
    # three of four GPUs get their images over a link of 12 GB/s
    inputs = 3 * 255 * profile.input_bytes / 12e9
    more = many.step.exposed_communication_seconds - few.step.exposed_communication_seconds
    assert more == pytest.approx(inputs, rel=0.01)
    # 30 µs for each layer and GPU are in it even at a batch of one
    assert few.step.exposed_communication_seconds > 4 * len(profile.layers) * 30e-6


def test_an_interval_is_wider_where_more_is_waited_for() -> None:
    def width(p: Prediction) -> float:
        return (p.high - p.low) / p.samples_per_second

    slow, fast = ({"rate": rate} for rate in ("1 Gbit/s", "100 Gbit/s"))
    assert width(predicted(slow, measured=True)) > width(predicted(fast, measured=True))
