"""Checks which parts of gpuyard work on this machine, and finds the command that fixes each other part."""

import importlib.util
import os
import tempfile
from dataclasses import dataclass

from gpuyard import files
from gpuyard.catalog import gpus, models
from gpuyard.errors import MissingRequirement
from gpuyard.hardware.host import HostInfo, discover_host
from gpuyard.lab import check_can_make_labs


@dataclass(frozen=True)
class Diagnosis:
    """The state of one part of gpuyard: whether it works, why, and the command that fixes it."""

    part: str
    works: bool
    why: str
    fix: str = ""


def diagnose_machine(host: HostInfo | None = None) -> list[Diagnosis]:
    """Check every part without changing anything."""
    host = host or discover_host()
    return [
        Diagnosis(
            "catalog, predict, and cost",
            True,
            f"{len(gpus())} GPUs and {len(models())} models in the catalog; no other requirements",
        ),
        _check_training(),
        _check_workers(host),
        _check_nccl(host),
        Diagnosis("topo and bench links", True, _describe_links(host)),
        _check_labs(),
        _check_store(),
        _check_spoken_digits(),
    ]


def _check_training() -> Diagnosis:
    part = "bench train and study's measurements"
    if importlib.util.find_spec("torch") is None:
        return Diagnosis(part, False, "PyTorch is not installed", "pip install 'gpuyard[train]'")
    import torch

    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        return Diagnosis(part, False, "this PyTorch has no gloo", "install a PyTorch with gloo")
    return Diagnosis(part, True, f"PyTorch {torch.__version__} with gloo")


def _check_workers(host: HostInfo) -> Diagnosis:
    part = "several workers on pinned cores"
    if host.usable_cores < 2:
        return Diagnosis(part, False, "only one core is usable, and each worker needs its own")
    if not hasattr(os, "sched_setaffinity"):
        return Diagnosis(part, True, "workers run, but only Linux pins them to cores")
    return Diagnosis(part, True, f"up to {host.usable_cores} workers")


def _describe_links(host: HostInfo) -> str:
    if host.gpus:
        return f"this machine's {len(host.gpus)} GPUs, presets, and files from other machines"
    return "presets and files from other machines; without a GPU, only memory and loopback are measured"


def _check_labs() -> Diagnosis:
    part = "emulated clusters"
    try:
        check_can_make_labs()
    except MissingRequirement as missing:
        sentence, _, fix = str(missing).partition(": ")
        return Diagnosis(part, False, sentence, fix.partition(";")[0])
    return Diagnosis(part, True, "gpuyard lab up")


def _check_nccl(host: HostInfo) -> Diagnosis:
    part = "training on GPUs over NCCL"
    if not host.gpus:
        fix = "pip install nvidia-ml-py" if "not installed" in (host.gpu_problem or "") else ""
        return Diagnosis(part, False, host.gpu_problem or "there is no GPU", fix)
    if importlib.util.find_spec("torch") is None:
        return Diagnosis(part, False, "PyTorch is not installed", "pip install 'gpuyard[train]'")
    import torch

    if not torch.cuda.is_available():
        return Diagnosis(
            part, False, "this PyTorch is a CPU build", "pip install --force-reinstall torch"
        )
    return Diagnosis(part, True, f"{len(host.gpus)} GPUs")


def _check_store() -> Diagnosis:
    home = files.home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        return Diagnosis(
            "results store",
            False,
            f"{home} cannot be written: {error.strerror}",
            "export GPUYARD_HOME=DIRECTORY",
        )
    return Diagnosis("results store", True, str(files.results_file()))


def _check_spoken_digits() -> Diagnosis:
    part = "the example on real clips"
    if files.dataset_directory("spoken-digits").is_dir():
        return Diagnosis(part, True, "the Free Spoken Digit Dataset is here")
    return Diagnosis(
        part,
        False,
        "the dataset was not found, so the study uses synthetic clips",
        "gpuyard data fetch spoken-digits",
    )
