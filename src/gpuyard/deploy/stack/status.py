"""Compare a machine's facts with the lock: what differs, why it matters, and how to fix it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuyard.deploy.stack.facts import StackFacts
from gpuyard.deploy.stack.lock import Framework, Lock, find_framework, parse_version

State = Literal["same", "differs", "missing", "not needed"]
_INSTALL = "sudo gpuyard stack install"


@dataclass(frozen=True)
class StackFinding:
    """One part of the stack compared with the lock."""

    part: str
    expected: str
    actual: str
    state: State
    why: str = ""
    """Why a difference matters."""
    fix: str = ""

    @property
    def ok(self) -> bool:
        return self.state in ("same", "not needed")


def compare(lock: Lock, facts: StackFacts) -> list[StackFinding]:
    """Return a finding for each part, from the driver up."""
    frameworks = [
        finding for name in facts.environments for finding in _compare_framework(lock, facts, name)
    ]
    if not facts.environments:
        why = "nothing can train here yet"
        frameworks = [StackFinding("frameworks", "one", "none", "missing", why, _INSTALL)]
    return [
        *_compare_driver(lock, facts),
        _compare_toolkit(lock, facts),
        *frameworks,
        *_compare_containers(lock, facts),
    ]


def _compare_driver(lock: Lock, facts: StackFacts) -> Iterator[StackFinding]:
    expected = f"{lock.driver.version} branch"
    part = "NVIDIA driver"
    if not facts.gpus_on_bus and not facts.gpus:
        yield StackFinding(part, expected, "none", "not needed", "no NVIDIA GPU on the PCI bus")
        return
    version = facts.gpus[0].driver if facts.gpus else facts.loaded_driver
    if not version:
        why = "no program can use the GPU"
        if facts.nouveau:
            why += "; nouveau uses it, and releases it when the machine restarts after the installation"
        elif facts.secure_boot:
            why += "; secure boot rejects drivers whose key is not enrolled (mokutil --import)"
        elif facts.smi_problem:
            why += f"; nvidia-smi reports: {facts.smi_problem}"
        yield StackFinding(part, expected, "none that runs", "missing", why, _INSTALL)
        return
    if facts.smi_problem:
        why = f"nvidia-smi reports: {facts.smi_problem}"
        yield StackFinding(part, expected, version, "differs", why, "restart the machine")
        return
    branch, locked = parse_version(version)[0], parse_version(lock.driver.version)[0]
    if branch == locked:
        yield StackFinding(part, expected, version, "same")
    elif branch > locked:
        why = "newer: everything in the lock runs on it, but other machines may behave differently"
        yield StackFinding(part, expected, version, "differs", why, _INSTALL)
    else:
        unsupported = [
            f"{name} (CUDA {framework.cuda} needs {family.minimum_driver})"
            for name, framework in lock.frameworks.items()
            if (family := lock.family(framework.cuda))
            and parse_version(version) < parse_version(family.minimum_driver)
        ]
        why = "older"
        if unsupported:
            why = f"too old for {', '.join(unsupported)}: they would find no GPU"
        yield StackFinding(part, expected, version, "differs", why, _INSTALL)


def _compare_toolkit(lock: Lock, facts: StackFacts) -> StackFinding:
    expected, part = lock.cuda.version, "CUDA toolkit"
    if not facts.gpus_on_bus and not facts.gpus:
        return StackFinding(part, expected, "none", "not needed", "no NVIDIA GPU")
    if lock.cuda.package in facts.packages:
        return StackFinding(part, expected, facts.packages[lock.cuda.package], "same")
    others = sorted(
        (name for name in facts.packages if re.fullmatch(r"cuda-toolkit-\d+-\d+", name)),
        key=parse_version,
    )
    if not others:
        why = "extensions with CUDA code cannot be compiled here; frameworks run without it"
        return StackFinding(part, expected, "none", "missing", why, _INSTALL)
    why = f"the lock's PyTorch was built with CUDA {expected} and cannot load extensions compiled with another version"
    return StackFinding(
        part, expected, others[-1].removeprefix("cuda-toolkit-"), "differs", why, _INSTALL
    )


def _compare_framework(lock: Lock, facts: StackFacts, name: str) -> Iterator[StackFinding]:
    framework = find_framework(lock, name)
    installed = facts.environments[name]
    gpu = bool(facts.gpus_on_bus or facts.gpus)
    fix = f"{_INSTALL} --framework {name}"
    version = installed.get(framework.package, "")
    if not version:
        why = "its environment exists, but the installation was interrupted"
        yield StackFinding(name, framework.version, "none", "missing", why, fix)
        return
    pins = dict(pin.split("==") for pin in framework.pins(gpu=gpu))
    pins[framework.package] = framework.version
    # The build after the + is checked separately.
    different = [
        f"{package} {installed.get(package, 'missing')} instead of {pin}"
        for package, pin in pins.items()
        if installed.get(package, "").partition("+")[0] != pin.partition("+")[0]
    ]
    if len(different) > 3:
        different[3:] = [f"{len(different) - 3} more packages differ"]
    why = "; ".join([*_check_build(framework, version, gpu), *different])
    yield StackFinding(
        name, framework.version, version, "differs" if why else "same", why, fix if why else ""
    )
    yield from _check_capabilities(lock, facts, name, framework)


def _check_build(framework: Framework, version: str, gpu: bool) -> Iterator[str]:
    """Check the build in PyTorch's version, like 2.13.0+cu126 or 2.13.0+cpu."""
    build = version.partition("+")[2]
    if gpu and framework.cuda and build == "cpu":
        yield "a CPU build, which does not use the GPU"
    elif match := re.fullmatch(r"cu(\d+)(\d)", build):
        cuda = f"{match[1]}.{match[2]}"
        if parse_version(cuda) != parse_version(framework.cuda)[:2]:
            yield f"built for CUDA {cuda} instead of {framework.cuda}, so its libraries differ from other machines'"


def _check_capabilities(
    lock: Lock, facts: StackFacts, name: str, framework: Framework
) -> Iterator[StackFinding]:
    family = lock.family(framework.cuda)
    if family is None:
        return
    for gpu in dict.fromkeys(facts.gpus):
        if gpu.capability and parse_version(gpu.capability) < parse_version(
            family.minimum_capability
        ):
            why = (
                f"builds for CUDA {family.major} have no code for it (no kernel image is available)"
            )
            fix = f"use {framework.older_gpus}" if framework.older_gpus else ""
            expected = f"{family.minimum_capability} or later"
            yield StackFinding(
                f"{gpu.name} with {name}", expected, gpu.capability, "differs", why, fix
            )


def _compare_containers(lock: Lock, facts: StackFacts) -> Iterator[StackFinding]:
    version = next(iter(re.findall(r"\d+(?:\.\d+)+", facts.docker)), "")
    expected = f"{lock.docker.version} or later"
    if not version:
        yield StackFinding("Docker", expected, "none", "missing", "containers cannot run", _INSTALL)
    elif parse_version(version) < parse_version(lock.docker.version):
        why = "it does not support --gpus"
        yield StackFinding("Docker", expected, version, "differs", why, _INSTALL)
    else:
        yield StackFinding("Docker", expected, version, "same")
    part, pinned = lock.container_toolkit.package, lock.container_toolkit.version
    installed = facts.packages.get(part, "").partition("-")[0]
    if not facts.gpus_on_bus and not facts.gpus:
        yield StackFinding(part, pinned, installed or "none", "not needed", "no NVIDIA GPU")
    elif not installed:
        why = "containers cannot use GPUs (docker run --gpus fails)"
        yield StackFinding(part, pinned, "none", "missing", why, _INSTALL)
    elif installed != pinned:
        why = "containers may access the GPU differently than on other machines"
        yield StackFinding(part, pinned, installed, "differs", why, _INSTALL)
    elif "nvidia" not in facts.docker_runtimes:
        why = "it is installed, but Docker is not configured to use it"
        yield StackFinding(
            part,
            pinned,
            installed,
            "differs",
            why,
            "sudo nvidia-ctk runtime configure --runtime=docker",
        )
    else:
        yield StackFinding(part, pinned, installed, "same")
