"""A run as it was after an epoch, in one file of plain arrays: whole, or the one before it.

No pickle: a checkpoint from elsewhere can't run code. Nothing is packed: it can't unpack to more than it is.
"""

import contextlib
import json
import math
import os
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from gpuyard import files
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import followed, replacing
from gpuyard.measure.convergence.records import EpochDone
from gpuyard.units import counted

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

_ABOUT = "about"
_NUMBERS = "biufc"  # kinds of dtype: an array of anything else is not ours
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def default_directory() -> Path:
    """Where checkpoints lie that the user has not named: all that is in there is ours."""
    return (files.home() / "checkpoints").absolute()


@dataclass(frozen=True)
class About:
    """What a checkpoint is of, and the epochs so far as JSON objects."""

    identity: str
    workers: int
    epochs: tuple[dict[str, Any], ...]


def save(path: Path, about: About, module: "nn.Module", optimizer: "Optimizer") -> None:
    """Replaces the last one in one step."""
    arrays = {f"model/{name}": _array(value) for name, value in module.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        arrays |= {f"optimizer/{index}/{name}": _array(value) for name, value in state.items()}
    said = json.dumps(asdict(about)).encode()
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **{_ABOUT: np.frombuffer(said, np.uint8)}, **arrays)


def read_about(path: Path) -> About | None:
    """None where there is no checkpoint."""
    if not path.exists():
        return None
    try:
        with _opened(path) as arrays:
            said = json.loads(arrays[_ABOUT].tobytes())
        epochs = tuple(EpochDone.model_validate(epoch) for epoch in said["epochs"])
        if not epochs:
            raise ValueError("it has no epochs")
        return About(str(said["identity"]), int(said["workers"]), tuple(said["epochs"]))
    except Exception as error:  # a damaged file fails in any way
        raise _unreadable(path, error) from error


def forget(path: Path) -> None:
    """Remove it, if it is a checkpoint: a file of another kind stays."""
    if not _is_ours(path):
        read_about(path)
    try:
        followed(path).unlink(missing_ok=True)  # a link stays a link
    except OSError as error:
        raise GpuyardError(f"{path} can't be removed: {error.strerror}") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Its arrays, after a look at what they would take: a small file of another kind can unpack to terabytes."""
    with path.open("rb") as file:
        with zipfile.ZipFile(file) as members:
            _check_sizes(members, os.fstat(file.fileno()).st_size)
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            yield arrays


def _check_sizes(members: zipfile.ZipFile, file_bytes: int) -> None:
    listed = members.infolist()
    packed = any(member.compress_type != zipfile.ZIP_STORED for member in listed)
    if packed or sum(member.file_size for member in listed) > file_bytes:
        raise ValueError("its arrays are packed, or larger than the file")
    for member in listed:
        with members.open(member) as array:
            shape, _, dtype = _HEADERS[npy.read_magic(array)](array)
            has_bytes = member.file_size - array.tell()
        if dtype.kind not in _NUMBERS or math.prod(shape) * dtype.itemsize != has_bytes:
            raise ValueError("an array is not as large as it says")


def _is_ours(path: Path) -> bool:
    return path.parent == default_directory() and not path.is_symlink()


def _unreadable(path: Path, error: Exception) -> GpuyardError:
    said = (isinstance(error, OSError) and error.strerror) or str(error)
    why = said.partition("\n")[0].strip().rstrip(":.") or type(error).__name__
    return GpuyardError(
        f"{path} is not a checkpoint that can be read ({why}); it was left as it is: "
        + (
            "begin again with --fresh"
            if _is_ours(path)
            else "move it away, or name another --checkpoint"
        )
    )


def check(path: Path, about: About, identity: str, workers: int) -> None:
    """Raise where going on from it would not be the same run."""
    if about.workers != workers:
        raise UserMistake(
            f"{path} is of a run with {counted(about.workers, 'worker')}, not {workers}; go on with as many, "
            "name another --checkpoint, or begin again with --fresh"
        )
    if about.identity != identity:
        raise UserMistake(
            f"{path} is of another run: workload, code, data, batch, seed or PyTorch differ; "
            "name another --checkpoint, or begin again with --fresh"
        )


def restore(path: Path, module: "nn.Module", optimizer: "Optimizer") -> None:
    """Put everything back as it was."""
    try:
        _restore(path, module, optimizer)
    except Exception as error:
        raise _unreadable(path, error) from error


def _restore(path: Path, module: "nn.Module", optimizer: "Optimizer") -> None:
    import torch

    model: dict[str, Tensor] = {}
    state: dict[int, dict[str, Tensor]] = {}
    with _opened(path) as arrays:
        for name in arrays.files:
            kind, _, rest = name.partition("/")
            if kind == "model":
                model[rest] = torch.from_numpy(arrays[name])
            elif kind == "optimizer":
                index, _, key = rest.partition("/")
                state.setdefault(int(index), {})[key] = torch.from_numpy(arrays[name])
    if _forms(model) != _forms(module.state_dict()):
        raise ValueError("its weights are of another model")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, values in state.items():
        shapes = {value.shape for value in values.values() if value.dim()}
        if not 0 <= index < len(parameters) or shapes - {parameters[index].shape}:
            raise ValueError("what it keeps for the optimizer is of another model")
    module.load_state_dict(model)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _forms(weights: "dict[str, Tensor]") -> dict[str, Any]:
    return {name: (value.shape, value.dtype) for name, value in weights.items()}


def _array(value: "Tensor") -> Any:
    return value.detach().cpu().numpy()
