"""A run as it was after an epoch, in one file of plain arrays: whole, or the one before it.

No pickle: a checkpoint from elsewhere can't run code.
"""

import json
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import replacing
from gpuyard.units import counted

_ABOUT = "about"


@dataclass(frozen=True)
class About:
    """What a checkpoint is of, and the epochs so far as JSON objects."""

    identity: str
    workers: int
    epochs: tuple[dict[str, Any], ...]


def save(path: Path, about: About, module: nn.Module, optimizer: Optimizer) -> None:
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
        with np.load(path, allow_pickle=False) as arrays:
            said = json.loads(arrays[_ABOUT].tobytes())
        return About(said["identity"], said["workers"], tuple(said["epochs"]))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise GpuyardError(
            f"{path} is not a checkpoint that can be read ({error}); begin again with --fresh"
        ) from error


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


def restore(path: Path, module: nn.Module, optimizer: Optimizer) -> None:
    """Put everything back as it was."""
    with np.load(path, allow_pickle=False) as arrays:
        model: dict[str, Any] = {}
        state: dict[int, dict[str, Any]] = {}
        for name in arrays.files:
            kind, _, rest = name.partition("/")
            if kind == "model":
                model[rest] = torch.from_numpy(arrays[name])
            elif kind == "optimizer":
                index, _, key = rest.partition("/")
                state.setdefault(int(index), {})[key] = torch.from_numpy(arrays[name])
    module.load_state_dict(model)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _array(value: torch.Tensor) -> Any:
    return value.detach().cpu().numpy()
