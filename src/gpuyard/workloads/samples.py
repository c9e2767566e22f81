"""The samples of a workload, and the mini-batches that one rank draws from them."""

import math
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpuyard import files
from gpuyard.errors import UserMistake
from gpuyard.specs import TrainingTarget, Workload
from gpuyard.workloads.code_trust import code_directories
from gpuyard.workloads.disk_images import UndecodedImages, find_images, is_on_disk
from gpuyard.workloads.resolve import call_factory, import_factory

if TYPE_CHECKING:
    import torch

    from gpuyard.workloads.task import Task

    Batch = tuple[tuple[torch.Tensor, ...], torch.Tensor]

_POOL_BYTES = 128e6  # synthetic samples that one rank holds; steps draw from them


@dataclass(frozen=True)
class Samples:
    """The samples of one epoch, and their source."""

    count: int
    data_source: str
    gather: "Callable[[torch.Tensor], Batch]"
    """Copies the samples with these indices into a new batch."""


def load_samples(workload: Workload, task: "Task") -> Samples:
    """Read or generate the workload's samples, once for all batch sizes."""
    source = workload.dataset.source if workload.dataset else "synthetic"
    if source == "spoken-digits":
        return _load_spoken_digits(workload, task)
    if source == "synthetic":
        return _generate_samples(workload, task, "synthetic")
    if is_on_disk(source):
        images = find_images(source, task.batch(1)[0][0].shape[1:])
        classes = workload.target.classes if isinstance(workload.target, TrainingTarget) else None
        if classes is not None and images.classes > classes:
            raise UserMistake(
                f"{source} has classes 0 to {images.classes - 1}, but the workload "
                f"{workload.name!r} has 'target: {{classes: {classes}}}'"
            )
        return _from_items(images, source)
    if ":" in source:
        return _load_user_dataset(source, code_directories(workload))
    raise UserMistake(
        f"dataset source {source!r} not found; use 'synthetic', 'spoken-digits', module:factory, "
        "or a path like ./images"
    )


def load_undecoded(workload: Workload, task: "Task") -> Samples:
    """Load samples for a synthetic GPU: images on disk are read but not decoded, anything else is not read."""
    source = workload.dataset.source if workload.dataset else "synthetic"
    if is_on_disk(source) and files.expand_home(source).exists():
        images = UndecodedImages(source)
        return replace(_from_items(images, source), data_source=f"{source}, read, not decoded")
    without_data = workload.model_copy(update={"dataset": None})
    samples = _generate_samples(without_data, task, "")
    return replace(samples, data_source="none: a synthetic GPU reads nothing")


def build_batches(
    workload: Workload,
    task: "Task",
    *,
    batch: int,
    rank: int = 0,
    world: int = 1,
    seed: int = 0,
    device: str = "cpu",
    samples: Samples | None = None,
) -> "Iterator[Batch]":
    """Yield endless shuffled mini-batches of this rank's shard, each assembled on demand.

    Every epoch is one permutation, the same on all ranks. Rank r takes every world-th sample from the r-th on, as
    torch's DistributedSampler does. A batch may span two epochs, so that all batches are full.
    """
    samples = samples or load_samples(workload, task)
    indices = _shard(samples.count, rank, world, seed)
    return _iterate_batches(samples, batch, indices, device)


def _shard(count: int, rank: int, world: int, seed: int) -> "Iterator[torch.Tensor]":
    """Yield this rank's indices of each epoch; short epochs are padded from their start."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    even = math.ceil(count / world) * world
    while True:
        order = torch.randperm(count, generator=generator)
        yield order.repeat(math.ceil(even / count))[:even][rank::world]


def _iterate_batches(
    samples: Samples, batch: int, epochs: "Iterator[torch.Tensor]", device: str
) -> "Iterator[Batch]":
    import torch

    remaining = next(epochs)
    while True:
        while len(remaining) < batch:
            remaining = torch.cat([remaining, next(epochs)])
        indices, remaining = remaining[:batch], remaining[batch:]
        inputs, target = samples.gather(indices)
        if device != "cpu":
            inputs = tuple(t.pin_memory().to(device, non_blocking=True) for t in inputs)
            target = target.pin_memory().to(device, non_blocking=True)
        yield inputs, target


def _from_tensors(
    inputs: "tuple[torch.Tensor, ...]", target: "torch.Tensor", source: str
) -> Samples:
    def gather(indices: "torch.Tensor") -> "Batch":
        selected = tuple(tensor.index_select(0, indices) for tensor in inputs)
        return selected, target.index_select(0, indices)

    return Samples(len(target), source, gather)


def _generate_samples(workload: Workload, task: "Task", source: str) -> Samples:
    inputs, target = task.batch(1)
    if any(len(tensor) != 1 for tensor in (*inputs, target)):
        raise UserMistake(
            f"a batch of {workload.model_name} must have the samples in its first dimension"
        )
    sample_bytes = sum(tensor.numel() * tensor.element_size() for tensor in (*inputs, target))
    max_samples = workload.dataset.samples if workload.dataset else 2000
    inputs, target = task.batch(max(1, min(max_samples, int(_POOL_BYTES // sample_bytes))))
    return _from_tensors(inputs, target, source)


def _load_spoken_digits(workload: Workload, task: "Task") -> Samples:
    directory = files.dataset_directory("spoken-digits")
    if not directory.is_dir():
        return _generate_samples(
            workload, task, "synthetic clips (the Free Spoken Digit Dataset is not fetched)"
        )
    import torch

    from gpuyard.workloads.digit_clips import load_clips

    sounds, digits = (torch.from_numpy(array) for array in load_clips(directory))
    model_inputs = task.batch(1)[0]
    if len(model_inputs) != 1 or model_inputs[0][0].numel() != sounds[0].numel():
        raise UserMistake(
            f"{workload.model_name} does not accept a clip of the spoken-digits dataset: a clip has "
            f"{sounds[0].numel()} numbers, but its input is {list(model_inputs[0].shape[1:])}"
        )
    sounds = sounds.reshape(len(sounds), *model_inputs[0].shape[1:])
    return _from_tensors((sounds,), digits, f"Free Spoken Digit Dataset, {len(sounds)} clips")


def _load_user_dataset(reference: str, directories: tuple[Path, ...]) -> Samples:
    product = call_factory(import_factory(reference, "dataset", directories), reference)
    if not (isinstance(product, Sized) and hasattr(product, "__getitem__")):
        raise UserMistake(
            f"{reference} returned a {type(product).__name__}; a dataset factory must return a torch "
            "Dataset with a length whose items are (input, target)"
        )
    if not len(product):
        raise UserMistake(f"the dataset of {reference} is empty")
    dataset = cast("Any", product)
    if not isinstance(dataset[0], tuple | list) or len(dataset[0]) != 2:
        raise UserMistake(f"items of the dataset of {reference} must be (input, target)")

    return _from_items(dataset, reference)


def _from_items(dataset: Any, name: str) -> Samples:
    import torch
    from torch.utils.data import default_collate

    def gather(indices: "torch.Tensor") -> "Batch":
        inputs, target = default_collate([dataset[int(index)] for index in indices])
        return (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs), target

    return Samples(len(dataset), f"{name}, {len(dataset)} samples", gather)
