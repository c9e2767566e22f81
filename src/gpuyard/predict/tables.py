"""The table that the step model reckons with, from workload × platform × method, one row a placement and
batch."""

from collections.abc import Sequence

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.predict import constants as c
from gpuyard.predict.compute import ComputeLine
from gpuyard.predict.constants import Constant
from gpuyard.predict.inputs import cores_for_each_gpu, variation_of
from gpuyard.predict.method import Method, method_of
from gpuyard.predict.placement import Placement
from gpuyard.predict.platform.fabric import Pipe
from gpuyard.predict.platform.platform import Platform
from gpuyard.predict.step import Configurations, Floats, Traffic
from gpuyard.specs import DEFAULT_EXCHANGE, ExchangeOptions, StrategyName, Workload


def configurations(
    workload: Workload,
    profile: ModelProfile,
    platform: Platform,
    line: ComputeLine,
    rows: Sequence[tuple[Placement, int]],
    *,
    strategy: StrategyName,
    exchange: ExchangeOptions = DEFAULT_EXCHANGE,
    overlap: Constant | None = None,
    variation: Constant = c.GPU_VARIATION,
) -> tuple[Configurations, Traffic]:
    """The table that the step model reckons with, one row a placement and batch, and its traffic."""
    between = overlap or c.default_overlap_between(strategy)
    inside = overlap or platform.overlap(strategy)
    method = method_of(profile, strategy, exchange, platform.gpu_memory_bytes_per_second)
    varied = variation_of(workload, platform.constant(variation))
    traffic = traffic_of(
        workload,
        profile,
        strategy,
        method=method,
        overlaps=(inside, between),
        variation=varied,
        disturbed=overlap is None,
        platform=platform,
    )
    return table_of(
        workload, platform, line, rows, profile=profile, strategy=strategy, method=method
    ), traffic


def traffic_of(
    workload: Workload,
    profile: ModelProfile,
    strategy: StrategyName,
    *,
    method: Method,
    overlaps: tuple[Constant, Constant],
    variation: Constant,
    disturbed: bool,
    platform: Platform,
) -> Traffic:
    """What the workload moves."""
    stored = workload.dataset.bytes_per_sample if workload.dataset else None
    preprocess = workload.dataset.preprocess if workload.dataset else None
    return Traffic(
        strategy=strategy,
        buckets=method.buckets,
        input_bytes_per_sample=profile.input_bytes,
        storage_bytes_per_sample=profile.input_bytes if stored is None else stored,
        overlap=overlaps[0].value,
        overlap_between=overlaps[1].value,
        backward_share=platform.constant(c.BACKWARD_SHARE).value,
        variation=variation.value,
        slowdown=c.SLOWDOWN.value if disturbed else 0.0,
        slowdown_between=c.default_slowdown_between(strategy) if disturbed else 0.0,
        launch_seconds=platform.constant(c.LAUNCH).value,
        preprocess_seconds=preprocess or 0.0,
        hierarchical=method.hierarchical,
    )


def table_of(
    workload: Workload,
    platform: Platform,
    line: ComputeLine,
    rows: Sequence[tuple[Placement, int]],
    *,
    profile: ModelProfile,
    strategy: StrategyName,
    method: Method,
) -> Configurations:
    """One row a placement and batch."""
    count = len(rows)

    def column(value: float | None) -> Floats:
        return np.full(count, np.inf if value is None else value)

    host_to_gpu = platform.host_to_gpu_bytes_per_second or (lambda _: np.inf)
    inside = [platform.inside(placement.gpus_per_node) for placement, _ in rows]
    between = [_between(platform, placement.nodes) for placement, _ in rows]
    per_gpu_overhead = (
        len(profile.layers) * c.DATA_PARALLEL_HOST.value if strategy == "dataparallel" else 0.0
    )
    gpus_per_node = np.array([placement.gpus / placement.nodes for placement, _ in rows])
    return Configurations(
        nodes=np.array([placement.nodes for placement, _ in rows], dtype=float),
        gpus_per_node=gpus_per_node,
        batch_per_gpu=np.array([batch for _, batch in rows], dtype=float),
        # one GPU has nothing to exchange and so nothing to compress
        fixed_seconds=np.array(
            [line.fixed_seconds + (method.seconds if p.gpus > 1 else 0.0) for p, _ in rows]
        ),
        seconds_per_sample=column(line.seconds_per_sample),
        inside_bytes_per_second=np.array([pipe.bytes_per_second for pipe in inside]),
        inside_latency_seconds=np.array([pipe.latency_seconds for pipe in inside]),
        between_bytes_per_second=np.array([pipe.bytes_per_second for pipe in between]),
        between_latency_seconds=np.array([pipe.latency_seconds for pipe in between]),
        host_to_gpu_bytes_per_second=np.array([host_to_gpu(p.gpus_per_node) for p, _ in rows]),
        storage_bytes_per_second=column(platform.storage_bytes_per_second),
        host_overhead_seconds=np.where(gpus_per_node > 1, per_gpu_overhead * gpus_per_node, 0.0),
        accumulate=column(method.accumulate),
        local_sgd=column(method.local_sgd),
        sent_share=column(method.sent_share),
        input_workers=np.array(
            [cores_for_each_gpu(workload, platform, p.gpus_per_node) for p, _ in rows]
        ),
    )


def _between(platform: Platform, nodes: int) -> Pipe:
    if nodes == 1:
        return Pipe(np.inf, 0.0, "one machine")
    if platform.between is None:
        raise ValueError("placements on several nodes need a network")
    return platform.between(nodes)


def memory_needed_bytes(profile: ModelProfile, workload: Workload, batch: int) -> float:
    """Weights, gradients and one momentum in fp32, and the activations kept for backward."""
    width = 1.0 if workload.precision in ("fp32", "tf32") else 0.5
    return 3.0 * profile.gradient_bytes + batch * width * profile.activation_bytes
