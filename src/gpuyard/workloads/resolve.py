"""From a workload spec to what trains: the task, and the mini-batches of one rank.

Importing this module does not import torch; a program without it gets a sentence.
"""

import hashlib
import importlib
import importlib.util
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpuyard import paths
from gpuyard.errors import GpuyardError, MissingRequirement, UnknownName, UserMistake, closest_name
from gpuyard.specs import Target, Tensor, Workload

if TYPE_CHECKING:
    import torch

    from gpuyard.workloads.task import Task

    Batch = tuple[tuple[torch.Tensor, ...], torch.Tensor]

_OURS = str(Path(__file__).parents[1])
_POOL_BYTES = 128e6  # of synthetic samples held by one rank; steps draw from them


def require_torch() -> None:
    """Raise the sentence that says how to get PyTorch where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise MissingRequirement("training needs PyTorch; install it with: pip install torch")


def build_task(workload: Workload) -> "Task":
    """The module, its batches and its loss; weights and batches follow torch's current seed."""
    require_torch()
    from torch import nn

    from gpuyard.workloads.task import Task

    reference = _factory_reference(workload.model)
    built = _call(_import_factory(reference, "model"), reference)
    if isinstance(built, Task):
        return built
    if isinstance(built, nn.Module):
        return _task_of_module(built, workload)
    raise UserMistake(
        f"{reference} returned a {type(built).__name__}; "
        "a model factory returns a torch.nn.Module or a gpuyard Task"
    )


def code_digest(reference: str) -> str | None:
    """A hash of the file that a module:factory is in, without importing it; None where not found.

    Two measurements of one spec are the same only if the code behind it is.
    """
    module_name = reference.partition(":")[0]
    places: list[str] = [str(Path.cwd()), *sys.path]
    parts = module_name.split(".")
    for depth in range(1, len(parts) + 1):
        found = PathFinder.find_spec(".".join(parts[:depth]), places)
        if found is None:
            return None
        if depth == len(parts):
            origin = Path(found.origin) if found.origin else None
            if origin is None or not origin.is_file():
                return None
            return hashlib.sha256(origin.read_bytes()).hexdigest()[:16]
        places = list(found.submodule_search_locations or [])
    return None


def _factory_reference(model: str) -> str:
    if ":" in model:
        return model
    from gpuyard.workloads.zoo import MODELS

    if model not in MODELS:
        raise UnknownName("model", model, MODELS)
    return MODELS[model]


def _import_factory(reference: str, kind: str) -> Callable[[], Any]:
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise UserMistake(
            f"{reference!r} is not a {kind}; write it as module:factory, like my_models:small"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        # a module that is there but imports something that is not has another fault
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise UserMistake(
                f"{module_name} cannot be imported: it needs {missing.name}, which is not installed"
            ) from missing
        raise UserMistake(
            f"there is no module {module_name!r} for the {kind} {reference!r}; "
            f"it is looked for in {here} and among the installed packages"
        ) from None
    except Exception as fault:
        raise own_code_fault(f"{module_name} cannot be imported", fault) from fault
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            public = [known for known in dir(found) if not known.startswith("_")]
            closest = closest_name(name, public)
            hint = f"; did you mean {closest!r}?" if closest else ""
            raise UserMistake(f"{module_name} has no {attribute!r}{hint}")
        found = getattr(found, name)
    if not callable(found):
        raise UserMistake(
            f"{reference} is a {type(found).__name__}, not a factory; "
            "it must be callable without arguments"
        )
    return cast("Callable[[], Any]", found)


def _call(factory: Callable[[], Any], reference: str) -> Any:
    try:
        return factory()
    except TypeError as error:
        # only a call that did not get into the factory is a mistake in how it is named
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise UserMistake(f"{reference} must be callable without arguments: {error}") from None
        raise own_code_fault(f"{reference} failed", error) from error
    except GpuyardError:
        raise
    except Exception as fault:
        raise own_code_fault(f"{reference} failed", fault) from fault


def own_code_fault(what: str, fault: Exception) -> UserMistake:
    """One sentence about a fault in the user's code, with the last line of theirs that it passed."""
    if isinstance(fault, SyntaxError) and fault.filename:
        return UserMistake(f"{what}: {fault.filename}:{fault.lineno}: {fault.msg}")
    own = [
        frame
        for frame in traceback.extract_tb(fault.__traceback__)
        if "site-packages" not in frame.filename and not frame.filename.startswith((_OURS, "<"))
    ]
    where = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
    return UserMistake(f"{what}: {where}{type(fault).__name__}: {fault}")


def _task_of_module(module: Any, workload: Workload) -> "Task":
    import torch.nn.functional as F  # noqa: N812  as everyone writes it

    from gpuyard.workloads.task import Task

    missing = [
        f"'{key}'"
        for key, given in (("input", workload.input), ("target", workload.target))
        if given is None
    ]
    if workload.input is None or workload.target is None:
        raise UserMistake(
            f"{workload.model} returned a bare torch module, so the workload {workload.name!r} needs "
            f"{' and '.join(missing)}, "
            "like: input: {shape: [3, 224, 224]} and target: {classes: 10}"
        )
    tensor, target = workload.input, workload.target
    if tensor.dtype == "int64" and tensor.below is None:
        raise UserMistake(
            f"the input of workload {workload.name!r} is int64 and needs 'below', "
            "the number of values that it can have"
        )
    loss = F.cross_entropy if target.classes is not None else F.mse_loss

    def batch(n: int) -> "Batch":
        return (_draw_input(tensor, n),), _draw_target(target, n)

    return Task(module, batch, loss, sample=f"{tensor.dtype} {list(tensor.shape)}")


def _draw_input(tensor: Tensor, n: int) -> "torch.Tensor":
    import torch

    if tensor.dtype == "int64":
        return torch.randint(tensor.below or 1, (n, *tensor.shape))
    return torch.randn(n, *tensor.shape)


def _draw_target(target: Target, n: int) -> "torch.Tensor":
    import torch

    if target.classes is not None:
        return torch.randint(target.classes, (n,))
    return torch.randn(n, *(target.shape or ()))


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
    if ":" in source:
        return _of_dataset(source)
    raise UserMistake(
        f"no dataset source is called {source!r}; write 'synthetic', 'spoken-digits' or module:factory"
    )


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
    directory = paths.dataset_directory("spoken-digits")
    if not directory.is_dir():
        return _pool(
            workload, task, "synthetic clips (the Free Spoken Digit Dataset is not fetched)"
        )
    import torch

    from gpuyard.workloads.spoken_digits_data import load_clips

    sounds, digits = (torch.from_numpy(array) for array in load_clips(directory))
    wanted = task.batch(1)[0]
    if len(wanted) != 1 or wanted[0][0].numel() != sounds[0].numel():
        raise UserMistake(
            f"{workload.model} does not take a clip of the spoken-digits dataset: "
            f"a clip has {sounds[0].numel()} numbers, its input is {list(wanted[0].shape[1:])}"
        )
    sounds = sounds.reshape(len(sounds), *wanted[0].shape[1:])
    return _of_tensors((sounds,), digits, f"Free Spoken Digit Dataset, {len(sounds)} clips")


def _of_dataset(reference: str) -> Samples:
    import torch
    from torch.utils.data import default_collate

    built = _call(_import_factory(reference, "dataset"), reference)
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

    def gather(indices: "torch.Tensor") -> "Batch":
        inputs, target = default_collate([dataset[int(index)] for index in indices])
        return (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs), target

    return Samples(len(built), f"{reference}, {len(built)} samples", gather)
