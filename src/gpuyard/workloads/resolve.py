"""From a workload spec to the task that trains, through the user's own code where that is named.

Importing this module does not import torch; a program without it gets a sentence.
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpuyard.errors import GpuyardError, MissingRequirement, UnknownName, UserMistake, closest_name
from gpuyard.specs import Tensor, TrainingTarget, Workload
from gpuyard.workloads.own_code import code_directories, code_of, find_module

if TYPE_CHECKING:
    import torch

    from gpuyard.workloads.task import Task

    Batch = tuple[tuple[torch.Tensor, ...], torch.Tensor]

_OURS = str(Path(__file__).parents[1])


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
    directories = code_directories(workload) if reference in code_of(workload) else ()
    built = call_factory(import_factory(reference, "model", directories), reference)
    if isinstance(built, Task):
        return built
    if isinstance(built, nn.Module):
        return _task_of_module(built, workload)
    raise UserMistake(
        f"{reference} returned a {type(built).__name__}; "
        "a model factory returns a torch.nn.Module or a gpuyard Task"
    )


def _factory_reference(model: str) -> str:
    if ":" in model:
        return model
    from gpuyard.workloads.zoo import MODELS

    if model not in MODELS:
        raise UnknownName("model", model, MODELS)
    return MODELS[model]


def import_factory(
    reference: str, kind: str, directories: tuple[Path, ...] = ()
) -> Callable[[], Any]:
    """Looked for in these directories last: nothing in them stands in for what is installed."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise UserMistake(
            f"{reference!r} is not a {kind}; write it as module:factory, like my_models:small"
        )
    sys.path += [place for place in map(str, directories) if place not in sys.path]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        # a module that is there but imports something that is not has another fault
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise UserMistake(
                f"{module_name} cannot be imported: it needs {missing.name}, which is not installed"
            ) from missing
        places = ["among the installed packages", *(f"in {place}" for place in directories)]
        raise UserMistake(
            f"there is no module {module_name!r} for the {kind} {reference!r}; it is looked for "
            + " and ".join(filter(None, [", ".join(places[:-1]), places[-1]]))
        ) from None
    except (Exception, SystemExit) as fault:
        raise own_code_fault(f"{module_name} cannot be imported", fault) from fault
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            public = [known for known in dir(found) if not known.startswith("_")]
            closest = closest_name(name, public)
            hint = f"; did you mean {closest!r}?" if closest else ""
            raise UserMistake(
                f"{module_name} has no {attribute!r}{hint}{_hidden(module_name, directories)}"
            )
        found = getattr(found, name)
    if not callable(found):
        raise UserMistake(
            f"{reference} is a {type(found).__name__}, not a factory; "
            "it must be callable without arguments"
        )
    return cast("Callable[[], Any]", found)


def call_factory(factory: Callable[[], Any], reference: str) -> Any:
    try:
        return factory()
    except TypeError as error:
        # only a call that did not get into the factory is a mistake in how it is named
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise UserMistake(f"{reference} must be callable without arguments: {error}") from None
        raise own_code_fault(f"{reference} failed", error) from error
    except GpuyardError:
        raise
    except (Exception, SystemExit) as fault:
        raise own_code_fault(f"{reference} failed", fault) from fault


def own_code_fault(what: str, fault: BaseException) -> UserMistake:
    """One sentence about a fault in the user's code, with the last line of theirs that it passed."""
    if isinstance(fault, SyntaxError) and fault.filename:
        return UserMistake(f"{what}: {fault.filename}:{fault.lineno}: {fault.msg}")
    own = [
        frame
        for frame in traceback.extract_tb(fault.__traceback__)
        if "site-packages" not in frame.filename and not frame.filename.startswith((_OURS, "<"))
    ]
    where = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
    if isinstance(fault, SystemExit):
        return UserMistake(f"{what}: {where}it ends the program with exit({fault.code!r})")
    return UserMistake(f"{what}: {where}{type(fault).__name__}: {fault}")


def _hidden(module_name: str, directories: tuple[Path, ...]) -> str:
    """Where an installed module has the name of the user's own."""
    taken, top = find_module(module_name, ()), module_name.partition(".")[0]
    for place in directories:
        mine = next((p for p in (place / f"{top}.py", place / top) if p.exists()), None)
        if mine is not None and taken is not None and not taken.is_relative_to(place):
            return f"; it is {taken}, which comes before {mine}: rename yours"
    return ""


def _task_of_module(module: Any, workload: Workload) -> "Task":
    import torch.nn.functional as F  # noqa: N812  as everyone writes it

    from gpuyard.workloads.task import Task

    missing = [
        f"'{key}'"
        for key, given in (("input", workload.input), ("target", workload.target))
        if given is None
    ]
    if workload.input is None or workload.target is None:
        images = "input: {shape: [3, 224, 224]} and target: {classes: 10}"
        tokens = "input: {shape: [256], below: 50257} and target: next-token"
        raise UserMistake(
            f"{workload.model} returned a bare torch module, so the workload {workload.name!r} needs "
            f"{' and '.join(missing)}, like: "
            + (
                tokens
                if workload.target == "next-token"
                else f"{images}; a language model: {tokens}"
            )
        )
    tensor, target = workload.input, workload.target
    if isinstance(target, str):
        return _next_token_task(module, workload.model, tensor)
    if tensor.dtype == "int64" and tensor.below is None:
        raise UserMistake(
            f"the input of workload {workload.name!r} is int64 and needs 'below', "
            "the number of values that it can have"
        )
    loss = F.cross_entropy if target.classes is not None else F.mse_loss

    def batch(n: int) -> "Batch":
        return (_draw_input(tensor, n),), _draw_target(target, n)

    return Task(module, batch, loss, sample=f"{tensor.dtype} {list(tensor.shape)}")


def _next_token_task(module: Any, model: str, tensor: Tensor) -> "Task":
    """Random tokens; each is to be predicted from those before it."""
    import torch

    from gpuyard.workloads.task import Task

    (length,) = tensor.shape

    def batch(n: int) -> "Batch":
        tokens = torch.randint(tensor.below or 1, (n, length + 1))
        return (tokens[:, :-1],), tokens[:, 1:]

    def loss(output: Any, tokens: "torch.Tensor") -> "torch.Tensor":
        logits = _logits(output)
        if logits is None or logits.shape[:-1] != tokens.shape:
            shape = "no tensor" if logits is None else f"{list(logits.shape)}"
            raise UserMistake(
                f"{model} returned {shape} for {list(tokens.shape)} tokens; target: next-token needs the "
                f"logits of every token, {[*tokens.shape, tensor.below]}"
            )
        return torch.nn.functional.cross_entropy(logits.flatten(0, -2), tokens.flatten())

    return Task(module, batch, loss, sample=f"sequence of {length:,} tokens")


def _logits(output: Any) -> "torch.Tensor | None":
    """What a language model returns: a tensor, a tuple that begins with it, or an object that has it."""
    import torch

    first = output[0] if isinstance(output, tuple | list) and output else output
    found = getattr(output, "logits", first)
    return found if isinstance(found, torch.Tensor) and found.dim() > 1 else None


def _draw_input(tensor: Tensor, n: int) -> "torch.Tensor":
    import torch

    if tensor.dtype == "int64":
        return torch.randint(tensor.below or 1, (n, *tensor.shape))
    return torch.randn(n, *tensor.shape)


def _draw_target(target: TrainingTarget, n: int) -> "torch.Tensor":
    import torch

    if target.classes is not None:
        return torch.randint(target.classes, (n,))
    return torch.randn(n, *(target.shape or ()))
