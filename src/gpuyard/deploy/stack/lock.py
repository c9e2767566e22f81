"""The lock: which versions belong together, each with its source, and whether they fit each other."""

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gpuyard import files
from gpuyard.errors import SpecError, UnknownName
from gpuyard.specs.deployment import FrameworkName

_MOST_BYTES = 100_000  # the shipped one has 6,000; the time that one key of many parts takes grows with their square
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9._+!-]*)")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_URL = re.compile(r"https://[A-Za-z0-9./_#-]+")
_PLAIN = re.compile(r"[A-Za-z0-9 .,;:()/'_+-]*")


def _like(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(text: str) -> str:
        if text and not pattern.fullmatch(text):
            raise ValueError(f"expected {what}, got {text[:80]!r}")
        return text

    return AfterValidator(check)


# everything here may reach a package manager, a Dockerfile or a page: nothing but plain names does
Version = Annotated[str, _like(_VERSION, "a version like 580 or 13.0")]
Requirement = Annotated[str, _like(_REQUIREMENT, "a requirement like numpy==2.4.6")]
Package = Annotated[str, _like(_PACKAGE, "the name of a package")]
Url = Annotated[str, _like(_URL, "an address that starts with https://")]
Words = Annotated[str, _like(_PLAIN, "plain words"), Field(max_length=400)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pinned(_Part):
    """One version, and who says that it is right."""

    version: Version = Field(min_length=1)
    source: Url
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    note: Words = ""


class Packaged(Pinned):
    """One that comes as a package of the system."""

    package: Package = Field(min_length=1)


class LockedHorovod(Pinned):
    """It is built on the machine, and needs these to run."""

    requirements: tuple[Requirement, ...]


class CudaFamily(_Part):
    """What programs need that were built with CUDA of one major version."""

    major: int
    minimum_driver: Version
    minimum_capability: Version
    source: Url
    date: str


class Framework(Packaged):
    """A framework with everything that it is installed with, as pip is told."""

    cuda: Version
    """What its build for GPUs was made with; empty where there is none."""
    cudnn: Version
    nccl: Version
    pythons: tuple[Version, ...]
    libraries: tuple[Package, ...] = ()
    """Packages of the system that its own packages need and don't bring."""
    requirements: tuple[Requirement, ...]
    gpu_requirements: tuple[Requirement, ...]
    cpu_requirements: tuple[Requirement, ...]
    cpu_index: Url = ""
    older_gpus: Words = ""
    """What GPUs use that this build does not know."""

    def pinned(self, *, gpu: bool) -> tuple[str, ...]:
        """Everything that its environment has on a machine with or without a GPU."""
        more = self.gpu_requirements if gpu else self.cpu_requirements
        return tuple(sorted((*self.requirements, *more)))

    def index(self, *, gpu: bool) -> str:
        """Where pip looks besides its own index."""
        return "" if gpu else self.cpu_index


class Lock(_Part):
    """The whole list."""

    name: Words
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    driver: Pinned
    cuda: Packaged
    cuda_families: tuple[CudaFamily, ...]
    docker: Packaged
    container_toolkit: Packaged
    horovod: LockedHorovod
    frameworks: dict[FrameworkName, Framework]

    def family(self, cuda: str) -> CudaFamily | None:
        """Of a version of CUDA."""
        major = numbers(cuda)[0] if cuda else None
        return next((family for family in self.cuda_families if family.major == major), None)


def numbers(version: str) -> tuple[int, ...]:
    """For comparing: 580.95.05 → (580, 95, 5)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def shipped_text() -> str:
    """As it is written, with its remarks."""
    return resources.files(__package__).joinpath("lock.toml").read_text(encoding="utf-8")


def read_lock(path: Path | None = None) -> Lock:
    """The one that gpuyard brings, or a user's own. Raises where it can't be one, or its parts don't fit."""
    if path is None:
        return Lock.model_validate(tomllib.loads(shipped_text()))
    text = files.read_text(path, SpecError, most_bytes=_MOST_BYTES)
    try:
        lock = Lock.model_validate(tomllib.loads(text))
        wrong = misfits(lock)
    except ValidationError as error:
        raise SpecError(f"{path}: {_first(error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not TOML: {error}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or too deep
        raise SpecError(f"{path}: can't be understood: {error}") from None
    if wrong:
        raise SpecError(f"{path}: {wrong[0]}")
    return lock


def misfits(lock: Lock) -> list[str]:
    """What in it does not fit the rest."""
    wrong = []
    for name, framework in lock.frameworks.items():
        family = lock.family(framework.cuda)
        if framework.cuda and family is None:
            wrong.append(
                f"{name} is built for CUDA {framework.cuda}, of which cuda_families says nothing"
            )
        elif family and numbers(lock.driver.version) < numbers(family.minimum_driver):
            wrong.append(
                f"{name} is built for CUDA {framework.cuda}, which needs driver {family.minimum_driver}, "
                f"and the driver is {lock.driver.version}"
            )
        for kind in ("gpu", "cpu"):
            wrong += _not_pinned(name, framework, kind == "gpu")
        for part, version in (("cudnn", framework.cudnn), ("nccl", framework.nccl)):
            if version and not any(
                requirement.startswith(f"nvidia-{part}") and requirement.endswith(f"=={version}")
                for requirement in framework.gpu_requirements
            ):
                wrong.append(f"{name} has {part} {version}, and its gpu_requirements pin another")
    pytorch = lock.frameworks.get("pytorch")
    if pytorch and numbers(pytorch.cuda)[:2] != numbers(lock.cuda.version)[:2]:
        wrong.append(
            f"the CUDA toolkit is {lock.cuda.version} and PyTorch is built for {pytorch.cuda}: extensions "
            "that are compiled with the one can't be loaded by the other"
        )
    return wrong


def _not_pinned(name: str, framework: Framework, gpu: bool) -> list[str]:
    pins = dict(pin.split("==") for pin in framework.pinned(gpu=gpu))
    found = pins.get(framework.package, "")
    if found.partition("+")[0] == framework.version:
        return []
    where = "with a GPU" if gpu else "without a GPU"
    return [
        f"{name} is {framework.version}, and {where} {framework.package}=={found} would be installed"
    ]


def _first(error: ValidationError) -> str:
    found: Any = error.errors()[0]
    where = ".".join(str(part) for part in found["loc"])
    return f"{where}: {found['msg'].removeprefix('Value error, ')}"


def framework_of(lock: Lock, name: str) -> Framework:
    """By its name. Raises where the lock has none of it."""
    found = next((known for key, known in lock.frameworks.items() if key == name), None)
    if found is None:
        raise UnknownName("framework", name, lock.frameworks)
    return found


def requirements_text(lock: Lock, name: str, *, gpu: bool) -> str:
    """What `pip install -r` takes."""
    framework = framework_of(lock, name)
    index = framework.index(gpu=gpu)
    lines = [f"# {name} {framework.version}, of gpuyard's lock {lock.name}"]
    lines += [f"--extra-index-url {index}"] if index else []
    return "".join(f"{line}\n" for line in (*lines, *framework.pinned(gpu=gpu)))
