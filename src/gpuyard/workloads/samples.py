"""The samples that a workload trains on, and the mini-batches that one rank draws from them."""

import math
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpuyard import files
from gpuyard.errors import UserMistake
from gpuyard.specs import TrainingTarget, Workload
from gpuyard.workloads.disk_images import UndecodedImages, find_images, is_on_disk
from gpuyard.workloads.own_code import code_directories
from gpuyard.workloads.resolve import call_factory, import_factory

if TYPE_CHECKING:
    import torch

    from gpuyard.workloads.task import Task

    Batch = tuple[tuple[torch.Tensor, ...], torch.Tensor]

_POOL_BYTES = 128e6  # of synthetic samples held by one rank; steps draw from them


@dataclass(frozen=True)
class Samples:
    """What one epoch goes through, and where it came from."""

    count: int
    data_source: str
    gather: "Callable[[torch.Tensor], Batch]"
    """Copies the samples of these indices into one new batch."""


def load_samples(workload: Workload, task: "Task") -> Samples:
    """Read or draw the samples of the workload; done once, whatever the batch sizes are."""
    source = workload.dataset.source if workload.dataset else "synthetic"
    if source == "spoken-digits":
        return _spoken_digits(workload, task)
    if source == "synthetic":
        return _pool(workload, task, "synthetic")
    if is_on_disk(source):
        images = find_images(source, task.batch(1)[0][0].shape[1:])
        known = workload.target.classes if isinstance(workload.target, TrainingTarget) else None
        if known is not None and images.classes > known:
            raise UserMistake(
                f"{source} has classes up to {images.classes - 1}, counted from 0, and the workload "
                f"{workload.name!r} says 'target: {{classes: {known}}}'"
            )
        return _of_items(images, source)
    if ":" in source:
        return _of_dataset(source, code_directories(workload))
    raise UserMistake(
        f"no dataset source is called {source!r}; write 'synthetic', 'spoken-digits', module:factory, "
        "or a path like ./images"
    )


def load_undecoded(workload: Workload, task: "Task") -> Samples:
    """For a GPU that computes nothing: images that are on a disk here are read all the same, nothing else is."""
    source = workload.dataset.source if workload.dataset else "synthetic"
    if is_on_disk(source) and Path(source).expanduser().exists():
        images = UndecodedImages(source)
        return replace(_of_items(images, source), data_source=f"{source}, read, not decoded")
    nothing = workload.model_copy(update={"dataset": None})
    return replace(_pool(nothing, task, ""), data_source="none: a synthetic GPU reads nothing")


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
    """Endless shuffled mini-batches of this rank's shard, each assembled when it is asked for.

    Every epoch is one permutation, the same on all ranks, of which rank r takes every world-th
    sample from the r-th on, as torch's DistributedSampler does. A batch may span two epochs, so
    that all batches are full.
    """
    samples = samples or load_samples(workload, task)
    mine = _shard(samples.count, rank, world, seed)
    return _batches(samples, batch, mine, device)


def _shard(count: int, rank: int, world: int, seed: int) -> "Iterator[torch.Tensor]":
    """This rank's indices, epoch after epoch; short epochs are filled up from their start."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    even = math.ceil(count / world) * world
    while True:
        order = torch.randperm(count, generator=generator)
        yield order.repeat(math.ceil(even / count))[:even][rank::world]


def _batches(
    samples: Samples, batch: int, epochs: "Iterator[torch.Tensor]", device: str
) -> "Iterator[Batch]":
    import torch

    waiting = next(epochs)
    while True:
        while len(waiting) < batch:
            waiting = torch.cat([waiting, next(epochs)])
        chosen, waiting = waiting[:batch], waiting[batch:]
        inputs, target = samples.gather(chosen)
        if device != "cpu":
            inputs = tuple(t.pin_memory().to(device, non_blocking=True) for t in inputs)
            target = target.pin_memory().to(device, non_blocking=True)
        yield inputs, target


def _of_tensors(inputs: "tuple[torch.Tensor, ...]", target: "torch.Tensor", source: str) -> Samples:
    def gather(indices: "torch.Tensor") -> "Batch":
        chosen = tuple(tensor.index_select(0, indices) for tensor in inputs)
        return chosen, target.index_select(0, indices)

    return Samples(len(target), source, gather)


def _pool(workload: Workload, task: "Task", source: str) -> Samples:
    inputs, target = task.batch(1)
    if any(len(tensor) != 1 for tensor in (*inputs, target)):
        raise UserMistake(
            f"a batch of {workload.model} does not have the samples in its first dimension"
        )
    sample_bytes = sum(tensor.numel() * tensor.element_size() for tensor in (*inputs, target))
    most = workload.dataset.samples if workload.dataset else 2000
    inputs, target = task.batch(max(1, min(most, int(_POOL_BYTES // sample_bytes))))
    return _of_tensors(inputs, target, source)


def _spoken_digits(workload: Workload, task: "Task") -> Samples:
    directory = files.dataset_directory("spoken-digits")
    if not directory.is_dir():
        return _pool(
            workload, task, "synthetic clips (the Free Spoken Digit Dataset is not fetched)"
        )
    import torch

    from gpuyard.workloads.digit_clips import load_clips

    sounds, digits = (torch.from_numpy(array) for array in load_clips(directory))
    wanted = task.batch(1)[0]
    if len(wanted) != 1 or wanted[0][0].numel() != sounds[0].numel():
        raise UserMistake(
            f"{workload.model} does not take a clip of the spoken-digits dataset: "
            f"a clip has {sounds[0].numel()} numbers, its input is {list(wanted[0].shape[1:])}"
        )
    sounds = sounds.reshape(len(sounds), *wanted[0].shape[1:])
    return _of_tensors((sounds,), digits, f"Free Spoken Digit Dataset, {len(sounds)} clips")


def _of_dataset(reference: str, directories: tuple[Path, ...]) -> Samples:
    built = call_factory(import_factory(reference, "dataset", directories), reference)
    if not (isinstance(built, Sized) and hasattr(built, "__getitem__")):
        raise UserMistake(
            f"{reference} returned a {type(built).__name__}; a dataset factory returns a torch "
            "Dataset with a length whose items are (input, target)"
        )
    if not len(built):
        raise UserMistake(f"the dataset of {reference} is empty")
    dataset = cast("Any", built)
    if not isinstance(dataset[0], tuple | list) or len(dataset[0]) != 2:
        raise UserMistake(f"an item of the dataset of {reference} is not (input, target)")

    return _of_items(dataset, reference)


def _of_items(dataset: Any, name: str) -> Samples:
    import torch
    from torch.utils.data import default_collate

    def gather(indices: "torch.Tensor") -> "Batch":
        inputs, target = default_collate([dataset[int(index)] for index in indices])
        return (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs), target

    return Samples(len(dataset), f"{name}, {len(dataset)} samples", gather)
