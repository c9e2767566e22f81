"""Build the trainable task of a workload spec, importing the user's own code if the spec names it.

Importing this module does not import torch.
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
from gpuyard.workloads.code_trust import code_directories, find_module, user_code

if TYPE_CHECKING:
    import torch

    from gpuyard.workloads.task import Task

    Batch = tuple[tuple[torch.Tensor, ...], torch.Tensor]

_PACKAGE = str(Path(__file__).parents[1])


def require_torch(purpose: str = "training") -> None:
    """Raise MissingRequirement with the install command if PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise MissingRequirement(f"{purpose} needs PyTorch: pip install 'gpuyard[train]'")


def build_task(workload: Workload) -> "Task":
    """Return the module, its batches, and its loss; weights and batches follow torch's current seed."""
    require_torch()
    from torch import nn

    from gpuyard.workloads.task import Task

    reference = _factory_reference(workload.model_name)
    directories = code_directories(workload) if reference in user_code(workload) else ()
    product = call_factory(import_factory(reference, "model", directories), reference)
    if isinstance(product, Task):
        return product
    if isinstance(product, nn.Module):
        return _task_from_module(product, workload)
    raise UserMistake(
        f"{reference} returned a {type(product).__name__}; "
        "a model factory must return a torch.nn.Module or a gpuyard Task"
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
    """Import a factory; these directories come last, so they never replace installed modules."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise UserMistake(
            f"{reference!r} is not a {kind}; write it as module:factory, like my_models:small"
        )
    sys.path += [path for path in map(str, directories) if path not in sys.path]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        # an existing module that imports a missing one has another fault
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise UserMistake(
                f"{module_name} cannot be imported: it needs {missing.name}, which is not installed"
            ) from missing
        places = ["the installed packages", *map(str, directories)]
        raise UserMistake(
            f"module {module_name!r} of the {kind} {reference!r} not found in "
            + " or ".join(filter(None, [", ".join(places[:-1]), places[-1]]))
        ) from None
    except (Exception, SystemExit) as fault:
        raise describe_fault(f"{module_name} cannot be imported", fault) from fault
    factory: Any = module
    for name in attribute.split("."):
        if not hasattr(factory, name):
            public = [other for other in dir(factory) if not other.startswith("_")]
            closest = closest_name(name, public)
            hint = f"; did you mean {closest!r}?" if closest else ""
            raise UserMistake(
                f"{module_name} has no {attribute!r}{hint}{_describe_shadowing(module_name, directories)}"
            )
        factory = getattr(factory, name)
    if not callable(factory):
        raise UserMistake(
            f"{reference} is a {type(factory).__name__}, not a factory; "
            "it must be callable without arguments"
        )
    return cast("Callable[[], Any]", factory)


def call_factory(factory: Callable[[], Any], reference: str) -> Any:
    try:
        return factory()
    except TypeError as error:
        # only a call that did not enter the factory has the wrong arguments
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise UserMistake(f"{reference} must be callable without arguments: {error}") from None
        raise describe_fault(f"{reference} failed", error) from error
    except GpuyardError:
        raise
    except (Exception, SystemExit) as fault:
        raise describe_fault(f"{reference} failed", fault) from fault


def describe_fault(what: str, fault: BaseException) -> UserMistake:
    """Describe a fault in the user's code, with the last of their lines in the traceback."""
    if isinstance(fault, SyntaxError) and fault.filename:
        return UserMistake(f"{what}: {fault.filename}:{fault.lineno}: {fault.msg}")
    user_frames = [
        frame
        for frame in traceback.extract_tb(fault.__traceback__)
        if "site-packages" not in frame.filename and not frame.filename.startswith((_PACKAGE, "<"))
    ]
    location = f"{user_frames[-1].filename}:{user_frames[-1].lineno}: " if user_frames else ""
    if isinstance(fault, SystemExit):
        return UserMistake(f"{what}: {location}it calls exit({fault.code!r})")
    return UserMistake(f"{what}: {location}{type(fault).__name__}: {fault}")


def _describe_shadowing(module_name: str, directories: tuple[Path, ...]) -> str:
    """Explain that an installed module has the same name as the user's own, if so."""
    installed, top = find_module(module_name, ()), module_name.partition(".")[0]
    for directory in directories:
        candidates = (directory / f"{top}.py", directory / top)
        own = next((path for path in candidates if path.exists()), None)
        if own is not None and installed is not None and not installed.is_relative_to(directory):
            return f"; it is {installed}, which takes precedence over {own}: rename yours"
    return ""


def _task_from_module(module: Any, workload: Workload) -> "Task":
    import torch.nn.functional as F  # noqa: N812  as everyone writes it

    from gpuyard.workloads.task import Task

    missing = [
        f"'{key}'"
        for key, value in (("input", workload.input), ("target", workload.target))
        if value is None
    ]
    if workload.input is None or workload.target is None:
        images = "input: {shape: [3, 224, 224]} and target: {classes: 10}"
        tokens = "input: {shape: [256], below: 50257} and target: next-token"
        raise UserMistake(
            f"{workload.model_name} returned a bare torch module, so the workload {workload.name!r} needs "
            f"{' and '.join(missing)}, like: "
            + (
                tokens
                if workload.target == "next-token"
                else f"{images}; a language model: {tokens}"
            )
        )
    tensor, target = workload.input, workload.target
    if isinstance(target, str):
        return _next_token_task(module, workload.model_name, tensor)
    if tensor.dtype == "int64" and tensor.below is None:
        raise UserMistake(
            f"the input of workload {workload.name!r} is int64 and needs 'below', "
            "the number of possible values"
        )
    loss = F.cross_entropy if target.classes is not None else F.mse_loss

    def batch(n: int) -> "Batch":
        return (_draw_input(tensor, n),), _draw_target(target, n)

    return Task(module, batch, loss, sample=f"{tensor.dtype} {list(tensor.shape)}")


def _next_token_task(module: Any, model: str, tensor: Tensor) -> "Task":
    """Return the task of predicting each of some random tokens from those before it."""
    import torch

    from gpuyard.workloads.task import Task

    (length,) = tensor.shape

    def batch(n: int) -> "Batch":
        tokens = torch.randint(tensor.below or 1, (n, length + 1))
        return (tokens[:, :-1],), tokens[:, 1:]

    def loss(output: Any, tokens: "torch.Tensor") -> "torch.Tensor":
        logits = _extract_logits(output)
        if logits is None or logits.shape[:-1] != tokens.shape:
            shape = "no tensor" if logits is None else f"{list(logits.shape)}"
            raise UserMistake(
                f"{model} returned {shape} for {list(tokens.shape)} tokens; 'target: next-token' needs the "
                f"logits of every token, {[*tokens.shape, tensor.below]}"
            )
        return torch.nn.functional.cross_entropy(logits.flatten(0, -2), tokens.flatten())

    return Task(module, batch, loss, sample=f"sequence of {length:,} tokens")


def _extract_logits(output: Any) -> "torch.Tensor | None":
    """Return the logits from a tensor, a tuple that starts with them, or an object that has them."""
    import torch

    first = output[0] if isinstance(output, tuple | list) and output else output
    logits = getattr(output, "logits", first)
    return logits if isinstance(logits, torch.Tensor) and logits.dim() > 1 else None


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
