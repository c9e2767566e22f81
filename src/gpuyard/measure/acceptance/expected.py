"""The figures that a cluster's spec promises: its GPUs, the rate of its network, its price, and the speed of a training step."""

from dataclasses import dataclass

from gpuyard.catalog import Gpu
from gpuyard.catalog.prices import find_cheapest_price
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.measure.acceptance.records import ClusterPrice
from gpuyard.predictor import Placement, Prediction, create_scenario, predict
from gpuyard.predictor.platform import create_platform, find_network
from gpuyard.predictor.transport import Fabric, create_fabric
from gpuyard.specs import Cluster, MachineSpec, Workload
from gpuyard.workloads.profiles import profile_model

# from large to small: the step of a smaller model is less work to exchange over a slow network
_TRAINING_MODELS = ("resnet50", "transformer-small", "spoken-digits-conv")
_MAX_EXCHANGE_SECONDS = 0.5


@dataclass(frozen=True)
class ClusterPromise:
    """The parts of a spec that nodes and links are compared with."""

    cluster: Cluster
    gpu: Gpu
    machine: MachineSpec
    fabric: Fabric | None
    link_bytes_per_second: float | None
    """The payload rate between two machines that the predictor expects."""

    @property
    def gpus(self) -> int:
        return self.cluster.nodes * self.machine.gpus


def read_promise(cluster: Cluster) -> ClusterPromise:
    """Read what a spec promises."""
    gpu, machine = resolve_machine(cluster)
    network = find_network(cluster)
    platform = create_platform(cluster)
    rate = platform.between(2).bytes_per_second if platform.between is not None else None
    fabric = create_fabric(network)[0] if network is not None else None
    return ClusterPromise(cluster, gpu, machine, fabric, rate)


def find_price(cluster: Cluster) -> ClusterPrice | None:
    """Return the cheapest on-demand price of such machines in the catalog; None if it has none."""
    gpu, machine = resolve_machine(cluster)
    cheapest = find_cheapest_price(gpu.id, machine.gpus)
    if cheapest is None:
        return None
    usd = cheapest.usd_per_gpu_hour * machine.gpus * cluster.nodes
    return ClusterPrice(
        usd_per_hour=usd,
        basis=f"on-demand price of {cheapest.gpus} × {gpu.id} at {cheapest.cloud}, {cheapest.date}",
    )


def choose_workload(promise: ClusterPromise) -> Workload:
    """Choose the largest of a few catalog models whose gradients the network exchanges in half a second."""
    rate = promise.link_bytes_per_second or float("inf")
    for name in _TRAINING_MODELS:
        workload = Workload(name=name, model=name)
        if 2 * profile_model(workload).gradient_bytes / rate <= _MAX_EXCHANGE_SECONDS:
            return workload
    return Workload(name=_TRAINING_MODELS[-1], model=_TRAINING_MODELS[-1])


def predict_step(
    cluster: Cluster, workload: Workload, nodes: int, gpus_per_node: int, batch: int
) -> Prediction:
    """Predict the training step on these nodes of the cluster."""
    scenario = create_scenario(workload, profile_model(workload), cluster)
    placement = Placement(nodes * gpus_per_node, nodes, gpus_per_node)
    (prediction,) = predict(scenario, [placement], [batch]).predictions
    return prediction


def predict_link_loss(promise: ClusterPromise, workload: Workload, ratio: float) -> float:
    """Return the share of its speed that a job on all nodes loses if one link runs at this share of its rate."""
    network, nodes = find_network(promise.cluster), promise.cluster.nodes
    if network is None or nodes < 2 or promise.fabric is None:
        return 0.0
    port = promise.fabric.wire_bytes_per_second * network.oversubscription / network.rails
    protocol = "tcp" if promise.fabric.tcp else "rdma"
    slower = network.model_copy(update={"link": None, "rate": port * ratio, "protocol": protocol})
    speeds = [
        predict_step(
            cluster, workload, nodes, promise.machine.gpus, workload.batch_per_gpu
        ).samples_per_second
        for cluster in (
            promise.cluster,
            promise.cluster.model_copy(update={"network": slower}),
        )
    ]
    return max(0.0, 1 - speeds[1] / speeds[0])
