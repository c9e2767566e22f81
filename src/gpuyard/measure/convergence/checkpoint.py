"""Saves and restores a run after each epoch, in one file of plain arrays that is replaced atomically.

Checkpoints contain no pickle, so a checkpoint from elsewhere cannot run code. They are not compressed, so they cannot
unpack to more than their size.
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
from gpuyard.files import follow_links, replace_file
from gpuyard.measure.convergence.records import EpochResult
from gpuyard.units import format_count

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

_HEADER = "about"
_NUMERIC_KINDS = "biufc"  # gpuyard writes no arrays of other dtypes
_NPY_HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def default_directory() -> Path:
    """Return the directory of checkpoints for which the user chose no path; only gpuyard writes there."""
    return (files.home() / "checkpoints").absolute()


@dataclass(frozen=True)
class CheckpointHeader:
    """The run that a checkpoint belongs to, and its finished epochs as JSON objects."""

    identity: str
    workers: int
    epochs: tuple[dict[str, Any], ...]


def save(path: Path, header: CheckpointHeader, module: "nn.Module", optimizer: "Optimizer") -> None:
    """Replace the previous checkpoint atomically."""
    arrays = {f"model/{name}": _to_numpy(value) for name, value in module.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        arrays |= {f"optimizer/{index}/{name}": _to_numpy(value) for name, value in state.items()}
    text = json.dumps(asdict(header)).encode()
    with replace_file(path) as file:
        np.savez(file, allow_pickle=False, **{_HEADER: np.frombuffer(text, np.uint8)}, **arrays)


def read_header(path: Path) -> CheckpointHeader | None:
    """Return the header of a checkpoint, or None if the file does not exist."""
    if not path.exists():
        return None
    try:
        with _open_arrays(path) as arrays:
            header = json.loads(arrays[_HEADER].tobytes())
        epochs = tuple(EpochResult.model_validate(epoch) for epoch in header["epochs"])
        if not epochs:
            raise ValueError("it has no epochs")
        return CheckpointHeader(
            str(header["identity"]), int(header["workers"]), tuple(header["epochs"])
        )
    except Exception as error:  # a damaged file can raise anything
        raise _unreadable_error(path, error) from error


def delete(path: Path) -> None:
    """Delete a checkpoint; raise an error if the file is not one."""
    if not _is_in_default_directory(path):
        read_header(path)
    try:
        follow_links(path).unlink(missing_ok=True)  # deletes the target and keeps the link
    except OSError as error:
        raise GpuyardError(f"cannot delete {path}: {error.strerror}") from error


@contextlib.contextmanager
def _open_arrays(path: Path) -> Iterator[Any]:
    """Open the arrays after checking their sizes: a small file of another kind can unpack to terabytes."""
    with path.open("rb") as file:
        with zipfile.ZipFile(file) as members:
            _check_sizes(members, os.fstat(file.fileno()).st_size)
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            yield arrays


def _check_sizes(members: zipfile.ZipFile, file_bytes: int) -> None:
    infos = members.infolist()
    compressed = any(info.compress_type != zipfile.ZIP_STORED for info in infos)
    if compressed or sum(info.file_size for info in infos) > file_bytes:
        raise ValueError("its arrays are compressed, or larger than the file")
    for info in infos:
        with members.open(info) as array:
            shape, _, dtype = _NPY_HEADER_READERS[npy.read_magic(array)](array)
            array_bytes = info.file_size - array.tell()
        if dtype.kind not in _NUMERIC_KINDS or math.prod(shape) * dtype.itemsize != array_bytes:
            raise ValueError("the size of an array does not match its header")


def _is_in_default_directory(path: Path) -> bool:
    return path.parent == default_directory() and not path.is_symlink()


def _unreadable_error(path: Path, error: Exception) -> GpuyardError:
    message = (isinstance(error, OSError) and error.strerror) or str(error)
    reason = message.partition("\n")[0].strip().rstrip(":.") or type(error).__name__
    return GpuyardError(
        f"{path} cannot be read as a checkpoint ({reason}) and was not changed; "
        + (
            "start over with --fresh"
            if _is_in_default_directory(path)
            else "move it away, or choose another file with --checkpoint"
        )
    )


def check_resumable(path: Path, header: CheckpointHeader, identity: str, workers: int) -> None:
    """Raise UserMistake if the checkpoint belongs to a different run."""
    if header.workers != workers:
        raise UserMistake(
            f"{path} belongs to a run with {format_count(header.workers, 'worker')}, not {workers}; "
            "use the same number, choose another file with --checkpoint, or start over with --fresh"
        )
    if header.identity != identity:
        raise UserMistake(
            f"{path} belongs to another run: its workload, code, data, batch, seed, or PyTorch differs; "
            "choose another file with --checkpoint, or start over with --fresh"
        )


def restore(path: Path, module: "nn.Module", optimizer: "Optimizer") -> None:
    """Load the state of the model and the optimizer."""
    try:
        _load_state(path, module, optimizer)
    except Exception as error:
        raise _unreadable_error(path, error) from error


def _load_state(path: Path, module: "nn.Module", optimizer: "Optimizer") -> None:
    import torch

    model: dict[str, Tensor] = {}
    state: dict[int, dict[str, Tensor]] = {}
    with _open_arrays(path) as arrays:
        for name in arrays.files:
            kind, _, rest = name.partition("/")
            if kind == "model":
                model[rest] = torch.from_numpy(arrays[name])
            elif kind == "optimizer":
                index, _, key = rest.partition("/")
                state.setdefault(int(index), {})[key] = torch.from_numpy(arrays[name])
    if _describe_tensors(model) != _describe_tensors(module.state_dict()):
        raise ValueError("its weights belong to another model")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, values in state.items():
        shapes = {value.shape for value in values.values() if value.dim()}
        if not 0 <= index < len(parameters) or shapes - {parameters[index].shape}:
            raise ValueError("its optimizer state belongs to another model")
    module.load_state_dict(model)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _describe_tensors(weights: "dict[str, Tensor]") -> dict[str, Any]:
    return {name: (value.shape, value.dtype) for name, value in weights.items()}


def _to_numpy(value: "Tensor") -> Any:
    return value.detach().cpu().numpy()
