"""Evaluate all candidate layouts of a model on a number of GPUs: time, memory, and fit of each."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from gpuyard.catalog import Gpu
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.large.cluster import NARROW_PRECISIONS, ClusterColumns, describe_cluster
from gpuyard.predictor.large.compute import WIDTH, TrainingOptions
from gpuyard.predictor.large.constants import load_fit
from gpuyard.predictor.large.effects import apply_effects, attention_is_older, find_effects
from gpuyard.predictor.large.layout import RECOMPUTE, Layout, LayoutColumns
from gpuyard.predictor.large.memory import MemoryColumns, compute_memory
from gpuyard.predictor.large.model import describe_model
from gpuyard.predictor.large.offload import add_transfers, remove_offloaded
from gpuyard.predictor.large.rules import check_request
from gpuyard.predictor.large.search import SearchSpace
from gpuyard.predictor.large.step import StepColumns, compute_step
from gpuyard.predictor.large.training import (
    QLORA_BYTES,
    LargeTraining,
    activation_number_bytes,
    default_global_batch,
    describe_states,
    find_families,
    narrow_choices,
    trained_share,
)
from gpuyard.predictor.table import Booleans, Floats
from gpuyard.specs import Cluster
from gpuyard.specs.parallel import Recompute

_USABLE_SHARE = 0.97  # of a GPU's memory that a program can allocate
_EAGER_SHARE = 0.5  # of PyTorch layers in separate operations, if a user does not say


@dataclass(frozen=True)
class Evaluation:
    """All candidate layouts of one number of GPUs, evaluated."""

    layouts: LayoutColumns
    tokens_per_second: Floats
    step: StepColumns
    memory: MemoryColumns
    fits: Booleans

    def best(self) -> int:
        """Return the fastest layout that fits, or the one that needs least memory."""
        speed = np.where(self.fits, self.tokens_per_second, 0.0)
        return int(speed.argmax()) if speed.any() else int(self.memory.total.argmin())


def evaluate(
    training: LargeTraining, cluster: Cluster, gpus: int, compute_speed: float = 1.0
) -> Evaluation:
    """Evaluate all candidate layouts on a number of GPUs, whose speed a power cap may lower."""
    gpu, machine = resolve_machine(cluster)
    if gpus > cluster.nodes * machine.gpus:
        raise UserMistake(
            f"{cluster.name} has only {cluster.nodes * machine.gpus} GPUs, not {gpus}"
        )
    layouts = list_layouts(training, gpus, machine.gpus)
    columns = describe_cluster(cluster, training.precision, -(-gpus // machine.gpus))
    memory = compute_layout_memory(training, layouts)
    step = compute_layout_step(training, layouts, columns, [gpu]).slow_compute(compute_speed)
    rate = layouts.global_batch * training.length / step.total
    return Evaluation(layouts, rate, step, memory, needed_bytes(memory.total) <= gpu.memory_bytes)


def list_layouts(training: LargeTraining, gpus: int, domain: int) -> LayoutColumns:
    """Return all layouts to consider on machines with `domain` GPUs, or raise UserMistake if there is none."""
    batch = training.global_batch or default_global_batch(gpus, training.length)
    choices = narrow_choices(training, gpus)
    space = SearchSpace(training.shape, gpus, domain, batch, training.length, choices)
    check_request(space, training.strategy)
    layouts = space.enumerate(find_families(training.strategy, gpus))
    if not len(layouts):
        raise UserMistake(
            f"no layout divides {gpus} GPUs, {training.shape.heads} heads, {training.shape.layers} layers, and "
            f"a global batch of {batch} evenly; try --global-batch {-(-batch // gpus) * gpus}"
        )
    return layouts


def compute_layout_step(
    training: LargeTraining,
    layouts: LayoutColumns,
    cluster: ClusterColumns,
    gpus: Sequence[Gpu],
) -> StepColumns:
    """Return the step of each layout; `cluster` and `gpus` have one entry, or one per layout."""
    fit, model = load_fit(), describe_model(training.shape, training.sequence)
    keys = {gpu.id: find_effects(fit, gpu, training.precision) for gpu in gpus}
    constants = apply_effects(fit.constants, fit.effects, [keys[gpu.id] for gpu in gpus])
    pytorch = np.asarray(layouts.pytorch)
    newer = np.array([float(attention_is_older(gpu, pytorch=True)) for gpu in gpus])
    options = TrainingOptions(
        narrow=float(training.precision in NARROW_PRECISIONS),
        flash=float(training.flash),
        older_attention=newer * pytorch,
        eager=_EAGER_SHARE * pytorch,
        trained_share=trained_share(training, model),
        parameter_bytes=activation_number_bytes(training.precision),
        activation_bytes=activation_number_bytes(training.precision),
        dequantized_bytes=QLORA_BYTES + WIDTH if training.qlora_rank else 0.0,
    )
    step = compute_step(model, layouts, cluster, options, constants)
    states = describe_states(training, layouts, trained_share(training, model))
    return add_transfers(step, training.offload, model, layouts, states)


def compute_layout_memory(training: LargeTraining, layouts: LayoutColumns) -> MemoryColumns:
    """Return the memory of each layout, which does not depend on the cluster."""
    model = describe_model(training.shape, training.sequence)
    states = describe_states(training, layouts, trained_share(training, model))
    memory = compute_memory(model, layouts, states, load_fit().memory)
    return remove_offloaded(memory, training.offload, model, layouts, states)


def usable_bytes(memory_bytes: float) -> float:
    """Return the bytes of a GPU's memory that a program can allocate."""
    return memory_bytes * _USABLE_SHARE


def needed_bytes(predicted: Floats) -> Floats:
    """Return the memory that a GPU must have: the prediction, a margin for its error, and what is not usable."""
    return np.asarray(predicted * load_fit().memory_margin / _USABLE_SHARE)


def select_layout(layouts: LayoutColumns, index: int) -> Layout:
    """Return one row as a layout."""
    row = {f.name: float(np.asarray(getattr(layouts, f.name))[index]) for f in fields(layouts)}
    names: tuple[Recompute, ...] = RECOMPUTE
    return Layout(
        tensor=int(row["tensor"]), pipeline=int(row["pipeline"]),
        virtual_pipeline=int(row["virtual_pipeline"]), context=int(row["context"]),
        expert=int(row["expert"]), data=int(row["data"]), zero=int(row["zero"]),
        shard=int(row["shard"]), micro_batch=int(row["micro_batch"]),
        global_batch=int(row["global_batch"]), recompute=names[int(row["recompute"])],
        family="pytorch" if row["pytorch"] else "megatron",
        zero_bubble=int(row["zero_bubble"]),
    )  # fmt: skip
