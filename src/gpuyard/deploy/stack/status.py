"""What differs from the lock, and why it matters: a pure function of facts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuyard.deploy.stack.facts import StackFacts
from gpuyard.deploy.stack.lock import Framework, Lock, framework_of, numbers

State = Literal["same", "differs", "missing", "not needed"]
_INSTALL = "sudo gpuyard stack install"


@dataclass(frozen=True)
class StackFinding:
    """One part of the stack, beside the lock."""

    part: str
    wanted: str
    found: str
    state: State
    why: str = ""
    """It matters."""
    fix: str = ""

    @property
    def ok(self) -> bool:
        return self.state in ("same", "not needed")


def compare(lock: Lock, facts: StackFacts) -> list[StackFinding]:
    """Part by part, from the driver up."""
    return [
        *_driver(lock, facts),
        _toolkit(lock, facts),
        *(found for name in facts.environments for found in _framework(lock, facts, name)),
        *([] if facts.environments else [_no_framework()]),
        *_containers(lock, facts),
    ]


def _driver(lock: Lock, facts: StackFacts) -> Iterator[StackFinding]:
    wanted = f"{lock.driver.version} branch"
    part = "NVIDIA driver"
    if not facts.gpus_on_bus and not facts.gpus:
        yield StackFinding(
            part, wanted, "none", "not needed", "there is no NVIDIA GPU on the PCI bus"
        )
        return
    version = facts.gpus[0].driver if facts.gpus else facts.loaded_driver
    if not version:
        why = "no program can use the GPU"
        if facts.nouveau:
            why += "; nouveau holds it, and makes way when the machine is restarted after the installation"
        elif facts.secure_boot:
            why += "; secure boot is on and refuses a driver whose key is not enrolled (mokutil --import)"
        elif facts.smi_problem:
            why += f"; nvidia-smi says: {facts.smi_problem}"
        yield StackFinding(part, wanted, "none that runs", "missing", why, _INSTALL)
        return
    if facts.smi_problem:
        why = f"nvidia-smi says: {facts.smi_problem}"
        yield StackFinding(part, wanted, version, "differs", why, "restart the machine")
        return
    branch, own = numbers(version)[0], numbers(lock.driver.version)[0]
    if branch == own:
        yield StackFinding(part, wanted, version, "same")
    elif branch > own:
        why = "newer: everything in the lock runs on it, but machines with another driver may behave otherwise"
        yield StackFinding(part, wanted, version, "differs", why, _INSTALL)
    else:
        late = [
            f"{name} (CUDA {framework.cuda} needs {family.minimum_driver})"
            for name, framework in lock.frameworks.items()
            if (family := lock.family(framework.cuda))
            and numbers(version) < numbers(family.minimum_driver)
        ]
        why = f"too old for {', '.join(late)}: no GPU would be found" if late else "older"
        yield StackFinding(part, wanted, version, "differs", why, _INSTALL)


def _toolkit(lock: Lock, facts: StackFacts) -> StackFinding:
    wanted, part = lock.cuda.version, "CUDA toolkit"
    if not facts.gpus_on_bus and not facts.gpus:
        return StackFinding(part, wanted, "none", "not needed", "there is no NVIDIA GPU")
    if lock.cuda.package in facts.packages:
        return StackFinding(part, wanted, facts.packages[lock.cuda.package], "same")
    others = sorted(
        (name for name in facts.packages if re.fullmatch(r"cuda-toolkit-\d+-\d+", name)),
        key=numbers,
    )
    if not others:
        why = "extensions with CUDA code can't be compiled here; frameworks run without it"
        return StackFinding(part, wanted, "none", "missing", why, _INSTALL)
    why = f"PyTorch of the lock was built with CUDA {wanted}: extensions compiled with another can't be loaded by it"
    return StackFinding(
        part, wanted, others[-1].removeprefix("cuda-toolkit-"), "differs", why, _INSTALL
    )


def _no_framework() -> StackFinding:
    return StackFinding("frameworks", "one", "none", "missing", "nothing trains here yet", _INSTALL)


def _framework(lock: Lock, facts: StackFacts, name: str) -> Iterator[StackFinding]:
    framework = framework_of(lock, name)
    have = facts.environments[name]
    gpu = bool(facts.gpus_on_bus or facts.gpus)
    fix = f"{_INSTALL} --framework {name}"
    version = have.get(framework.package, "")
    if not version:
        why = "its environment is there, but an installation was cut off"
        yield StackFinding(name, framework.version, "none", "missing", why, fix)
        return
    pins = dict(pin.split("==") for pin in framework.pinned(gpu=gpu))
    pins[framework.package] = framework.version
    # what follows the + is the build, which is looked at by itself
    wrong = [
        f"{package} {have.get(package, 'missing')} instead of {pin}"
        for package, pin in pins.items()
        if have.get(package, "").partition("+")[0] != pin
    ]
    why = "; ".join([*_built_for(framework, version, gpu), *_too_many(wrong)])
    yield StackFinding(
        name, framework.version, version, "differs" if why else "same", why, fix if why else ""
    )
    yield from _old_gpus(lock, facts, name, framework)


def _built_for(framework: Framework, version: str, gpu: bool) -> Iterator[str]:
    """PyTorch says in its version what it was built for: 2.13.0+cu126, 2.13.0+cpu."""
    build = version.partition("+")[2]
    if gpu and framework.cuda and build == "cpu":
        yield "built for the CPU: it does not see the GPU"
    elif built := re.fullmatch(r"cu(\d+)(\d)", build):
        cuda = f"{built[1]}.{built[2]}"
        if numbers(cuda) != numbers(framework.cuda)[:2]:
            yield f"built for CUDA {cuda} and not {framework.cuda}, so with other libraries than on other machines"


def _too_many(wrong: list[str]) -> list[str]:
    return [*wrong[:3], *([f"{len(wrong) - 3} more packages differ"] if len(wrong) > 3 else [])]


def _old_gpus(
    lock: Lock, facts: StackFacts, name: str, framework: Framework
) -> Iterator[StackFinding]:
    family = lock.family(framework.cuda)
    if family is None:
        return
    for gpu in dict.fromkeys(facts.gpus):
        if gpu.capability and numbers(gpu.capability) < numbers(family.minimum_capability):
            why = (
                f"builds for CUDA {family.major} have no code for it (no kernel image is available)"
            )
            fix = f"use {framework.older_gpus}" if framework.older_gpus else ""
            wanted = f"{family.minimum_capability} or later"
            yield StackFinding(
                f"{gpu.name} with {name}", wanted, gpu.capability, "differs", why, fix
            )


def _containers(lock: Lock, facts: StackFacts) -> Iterator[StackFinding]:
    version = next(iter(re.findall(r"\d+(?:\.\d+)+", facts.docker)), "")
    wanted = f"{lock.docker.version} or later"
    if not version:
        yield StackFinding("Docker", wanted, "none", "missing", "no container can be run", _INSTALL)
    elif numbers(version) < numbers(lock.docker.version):
        why = "it does not know --gpus"
        yield StackFinding("Docker", wanted, version, "differs", why, _INSTALL)
    else:
        yield StackFinding("Docker", wanted, version, "same")
    part, pinned = lock.container_toolkit.package, lock.container_toolkit.version
    installed = facts.packages.get(part, "").partition("-")[0]
    if not facts.gpus_on_bus and not facts.gpus:
        yield StackFinding(
            part, pinned, installed or "none", "not needed", "there is no NVIDIA GPU"
        )
    elif not installed:
        why = "containers see no GPU (docker run --gpus fails)"
        yield StackFinding(part, pinned, "none", "missing", why, _INSTALL)
    elif installed != pinned:
        why = "containers may get the GPU in another way than on other machines"
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
