"""The lock: a list of compatible versions, each with its source, and the check that they fit each other."""

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gpuyard import files
from gpuyard.errors import SpecError, UnknownName
from gpuyard.specs.deployment import FrameworkName

_MAX_BYTES = 100_000  # the shipped lock has 6,000; parsing a dotted key takes quadratic time
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9._+!-]*)")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_URL = re.compile(r"https://[A-Za-z0-9./_#-]+")
_PLAIN = re.compile(r"[A-Za-z0-9 .,;:()/'_+-]*")


def _check_pattern(pattern: re.Pattern[str], description: str) -> AfterValidator:
    def check(text: str) -> str:
        if text and not pattern.fullmatch(text):
            raise ValueError(f"expected {description}, got {text[:80]!r}")
        return text

    return AfterValidator(check)


# These values may reach a package manager, a Dockerfile, or a web page, so only plain text is allowed.
Version = Annotated[str, _check_pattern(_VERSION, "a version like 580 or 13.0")]
Requirement = Annotated[str, _check_pattern(_REQUIREMENT, "a requirement like numpy==2.4.6")]
Package = Annotated[str, _check_pattern(_PACKAGE, "a package name")]
Url = Annotated[str, _check_pattern(_URL, "a URL that starts with https://")]
PlainText = Annotated[str, _check_pattern(_PLAIN, "plain text"), Field(max_length=400)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PinnedVersion(_Part):
    """A version, and the source that confirms it."""

    version: Version = Field(min_length=1)
    source: Url
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    note: PlainText = ""


class PinnedPackage(PinnedVersion):
    """A version that is installed as a package."""

    package: Package = Field(min_length=1)


class LockedHorovod(PinnedVersion):
    """Horovod, which is built on the machine, and its runtime requirements."""

    requirements: tuple[Requirement, ...]


class CudaFamily(_Part):
    """The requirements of programs that were built with one major version of CUDA."""

    major: int
    minimum_driver: Version
    minimum_capability: Version
    source: Url
    date: str


class Framework(PinnedPackage):
    """A framework with all of its pip requirements."""

    cuda: Version
    """The CUDA version of its GPU build; empty if there is none."""
    cudnn: Version
    nccl: Version
    pythons: tuple[Version, ...]
    libraries: tuple[Package, ...] = ()
    """System packages that its pip packages need but do not include."""
    requirements: tuple[Requirement, ...]
    gpu_requirements: tuple[Requirement, ...]
    cpu_requirements: tuple[Requirement, ...]
    cpu_index: Url = ""
    older_gpus: PlainText = ""
    """The alternative for GPUs that this build does not support."""

    def pins(self, *, gpu: bool) -> tuple[str, ...]:
        """Return everything that its environment contains on a machine with or without a GPU."""
        more = self.gpu_requirements if gpu else self.cpu_requirements
        return tuple(sorted((*self.requirements, *more)))

    def index(self, *, gpu: bool) -> str:
        """Return the additional package index for pip, or an empty string."""
        return "" if gpu else self.cpu_index


class Lock(_Part):
    """All versions of the stack."""

    name: PlainText
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    driver: PinnedVersion
    cuda: PinnedPackage
    cuda_families: tuple[CudaFamily, ...]
    docker: PinnedPackage
    container_toolkit: PinnedPackage
    horovod: LockedHorovod
    frameworks: dict[FrameworkName, Framework]

    def family(self, cuda: str) -> CudaFamily | None:
        """Return the family of a CUDA version."""
        major = parse_version(cuda)[0] if cuda else None
        return next((family for family in self.cuda_families if family.major == major), None)


def parse_version(version: str) -> tuple[int, ...]:
    """Return a version as comparable numbers: 580.95.05 → (580, 95, 5)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def read_shipped_text() -> str:
    """Return the shipped lock file with its comments."""
    return resources.files(__package__).joinpath("lock.toml").read_text(encoding="utf-8")


def read_lock(path: Path | None = None) -> Lock:
    """Read the shipped lock, or a user's own. Raises if it is invalid, or its versions are incompatible."""
    if path is None:
        return Lock.model_validate(tomllib.loads(read_shipped_text()))
    text = files.read_text(path, SpecError, max_bytes=_MAX_BYTES)
    try:
        lock = Lock.model_validate(tomllib.loads(text))
        conflicts = find_conflicts(lock)
    except ValidationError as error:
        raise SpecError(f"{path}: {_describe_first(error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not TOML: {error}") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number with thousands of digits, or deep nesting
        raise SpecError(f"{path}: cannot be parsed: {error}") from None
    if conflicts:
        raise SpecError(f"{path}: {conflicts[0]}")
    return lock


def find_conflicts(lock: Lock) -> list[str]:
    """Return a sentence for each version that does not fit the others."""
    conflicts = []
    for name, framework in lock.frameworks.items():
        family = lock.family(framework.cuda)
        if framework.cuda and family is None:
            conflicts.append(
                f"{name} is built for CUDA {framework.cuda}, which cuda_families does not list"
            )
        elif family and parse_version(lock.driver.version) < parse_version(family.minimum_driver):
            conflicts.append(
                f"{name} is built for CUDA {framework.cuda}, which needs driver {family.minimum_driver}, "
                f"and the driver is {lock.driver.version}"
            )
        for kind in ("gpu", "cpu"):
            conflicts += _check_pin(name, framework, kind == "gpu")
        for part, version in (("cudnn", framework.cudnn), ("nccl", framework.nccl)):
            if version and not any(
                requirement.startswith(f"nvidia-{part}") and requirement.endswith(f"=={version}")
                for requirement in framework.gpu_requirements
            ):
                conflicts.append(
                    f"{name} has {part} {version}, and its gpu_requirements pin another version"
                )
    pytorch = lock.frameworks.get("pytorch")
    if pytorch and parse_version(pytorch.cuda)[:2] != parse_version(lock.cuda.version)[:2]:
        conflicts.append(
            f"the CUDA toolkit is {lock.cuda.version} and PyTorch is built for {pytorch.cuda}: PyTorch cannot load "
            "extensions that are compiled with another CUDA version"
        )
    return conflicts


def _check_pin(name: str, framework: Framework, gpu: bool) -> list[str]:
    pins = dict(pin.split("==") for pin in framework.pins(gpu=gpu))
    version = pins.get(framework.package, "")
    if version.partition("+")[0] == framework.version:
        return []
    where = "with a GPU" if gpu else "without a GPU"
    return [
        f"{name} is {framework.version}, but machines {where} would get {framework.package}=={version}"
    ]


def _describe_first(error: ValidationError) -> str:
    first: Any = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}: {first['msg'].removeprefix('Value error, ')}"


def find_framework(lock: Lock, name: str) -> Framework:
    """Return the framework with this name. Raises if the lock does not have it."""
    framework = next((value for key, value in lock.frameworks.items() if key == name), None)
    if framework is None:
        raise UnknownName("framework", name, lock.frameworks)
    return framework


def render_requirements(lock: Lock, name: str, *, gpu: bool) -> str:
    """Return a requirements file for `pip install -r`."""
    framework = find_framework(lock, name)
    index = framework.index(gpu=gpu)
    lines = [f"# {name} {framework.version}, from gpuyard's lock {lock.name}"]
    lines += [f"--extra-index-url {index}"] if index else []
    return "".join(f"{line}\n" for line in (*lines, *framework.pins(gpu=gpu)))
