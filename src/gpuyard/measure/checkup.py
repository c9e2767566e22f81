"""Which parts of gpuyard can work on this machine, and the command that would fix what can't."""

import importlib.util
import os
import tempfile
from dataclasses import dataclass

from gpuyard import files
from gpuyard.catalog import gpus, models
from gpuyard.errors import MissingRequirement
from gpuyard.hardware.host import ThisHost, discover_host
from gpuyard.lab import check_can_make_labs


@dataclass(frozen=True)
class Diagnosis:
    """One part: does it work, why, and what to type if not."""

    part: str
    works: bool
    why: str
    fix: str = ""


def check_up(host: ThisHost | None = None) -> list[Diagnosis]:
    """Try everything that can be tried without changing anything."""
    host = host or discover_host()
    return [
        Diagnosis(
            "catalog, predict and cost",
            True,
            f"{len(gpus())} GPUs and {len(models())} models in the catalog; needs nothing else",
        ),
        _training(),
        _scaling(host),
        _nccl(host),
        Diagnosis("topo and bench links", True, _links_of(host)),
        _labs(),
        _store(),
        _spoken_digits(),
    ]


def _training() -> Diagnosis:
    if importlib.util.find_spec("torch") is None:
        return Diagnosis(
            "bench train and study's measurements",
            False,
            "PyTorch is not installed",
            "pip install torch",
        )
    import torch

    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        return Diagnosis(
            "bench train and study's measurements",
            False,
            "this PyTorch has no gloo",
            "install a PyTorch with gloo",
        )
    return Diagnosis(
        "bench train and study's measurements", True, f"PyTorch {torch.__version__} with gloo"
    )


def _scaling(host: ThisHost) -> Diagnosis:
    part = "several workers on pinned cores"
    if host.usable_cores < 2:
        return Diagnosis(part, False, "there is one usable core, and each worker needs its own")
    if not hasattr(os, "sched_setaffinity"):
        return Diagnosis(part, True, "workers run, but only Linux pins them to cores")
    return Diagnosis(part, True, f"up to {host.usable_cores} workers")


def _links_of(host: ThisHost) -> str:
    if host.gpus:
        return f"this machine's {len(host.gpus)} GPUs, presets, and what others send you"
    return "presets and what others send you; here only memory and loopback can be measured"


def _labs() -> Diagnosis:
    part = "emulated clusters"
    try:
        check_can_make_labs()
    except MissingRequirement as missing:
        sentence, _, fix = str(missing).partition(": ")
        return Diagnosis(part, False, sentence, fix.partition(";")[0])
    return Diagnosis(part, True, "gpuyard lab up")


def _nccl(host: ThisHost) -> Diagnosis:
    part = "training on GPUs over NCCL"
    if not host.gpus:
        fix = "pip install nvidia-ml-py" if "not installed" in (host.gpu_problem or "") else ""
        return Diagnosis(part, False, host.gpu_problem or "there is no GPU", fix)
    if importlib.util.find_spec("torch") is None:
        return Diagnosis(part, False, "PyTorch is not installed", "pip install torch")
    import torch

    if not torch.cuda.is_available():
        return Diagnosis(
            part, False, "this PyTorch is a CPU build", "pip install --force-reinstall torch"
        )
    return Diagnosis(part, True, f"{len(host.gpus)} GPUs")


def _store() -> Diagnosis:
    home = files.home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        return Diagnosis(
            "results store",
            False,
            f"{home} can't be written: {error.strerror}",
            "export GPUYARD_HOME=DIRECTORY",
        )
    return Diagnosis("results store", True, str(files.results_file()))


def _spoken_digits() -> Diagnosis:
    part = "the example on real clips"
    if files.dataset_directory("spoken-digits").is_dir():
        return Diagnosis(part, True, "the Free Spoken Digit Dataset is here")
    return Diagnosis(
        part, False, "the dataset is not here; the study then runs on synthetic clips",
        "gpuyard data fetch spoken-digits",
    )  # fmt: skip
