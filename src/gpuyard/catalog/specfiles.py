"""Spec files read with every name checked against the catalog; a catalog name does instead of a workload
file. The larger specs, and the tables that only they name, are imported when one is read: a prediction starts sooner
without."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.catalog.hardware import gpus, links, machines
from gpuyard.catalog.models import models
from gpuyard.catalog.prices import past_prices, prices
from gpuyard.errors import UnknownName
from gpuyard.specs import Dataset, KnownNames, Workload, read_spec
from gpuyard.specs.base import kind_of

if TYPE_CHECKING:
    from gpuyard.specs.deployment import Deployment
    from gpuyard.specs.job import JobSpec
    from gpuyard.specs.offers import Offers
    from gpuyard.specs.plan import Plan
    from gpuyard.specs.site import Site
    from gpuyard.specs.study import Study
    from gpuyard.specs.sweep import SweepFile

# the four speakers of the founding experiment: 12,000 numbers of 4 bytes a clip
_SPOKEN_DIGITS = Dataset(samples=2000, bytes_per_sample=48_000, source="spoken-digits")


def _offers() -> frozenset[str]:
    from gpuyard.catalog.prices import build_ids

    return frozenset((*prices().ids(), *machines().ids(), *build_ids()))


def _pdus() -> frozenset[str]:
    from gpuyard.catalog.facility import pdus

    return frozenset(pdus().ids())


def _plugs() -> frozenset[str]:
    from gpuyard.catalog.facility import plugs

    return frozenset(plugs().ids())


def _regions() -> frozenset[str]:
    from gpuyard.catalog.electricity import electricity_prices

    return frozenset(name for name in electricity_prices().ids() if "-" in name)


_NAMES: dict[str, Callable[[], frozenset[str]]] = {
    "GPU": lambda: frozenset(gpus().ids()),
    "link": lambda: frozenset(links().ids()),
    "machine": lambda: frozenset(machines().ids()),
    "model": lambda: frozenset(models().ids()),
    "instance": lambda: frozenset([*prices().ids(), *past_prices().ids()]),
    "cloud": lambda: frozenset(price.cloud for price in prices()),
    "offer": _offers,
    "PDU": _pdus,
    "plug": _plugs,
    "region": _regions,
}


class _Names(Mapping[str, frozenset[str]]):
    """A table is read when a spec first names something of its kind: a cluster needs no prices."""

    def __getitem__(self, kind: str) -> frozenset[str]:
        return _NAMES[kind]()

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


def known_names() -> KnownNames:
    """Every name that a spec may use, by kind."""
    return _Names()


def read_workload(name_or_path: str, directory: Path = Path()) -> Workload:
    """A workload file, or a catalog model as a workload with synthetic data."""
    if is_file(name_or_path, directory):
        file = directory / name_or_path
        return read_spec(file, Workload, known_names()).read_from(file)
    if name_or_path not in models():
        names = known_names()
        raise UnknownName(
            "model",
            name_or_path,
            names["model"],
            instead=kind_of(name_or_path, names),
            called="workload file and no model of the catalog",
        )
    clips = _SPOKEN_DIGITS if name_or_path.startswith("spoken-digits") else None
    return Workload(name=name_or_path, model=name_or_path, dataset=clips)


def read_study(path: Path) -> "Study":
    """The files that it names are read by whoever runs it."""
    from gpuyard.specs.study import Study

    return read_spec(path, Study, known_names())


def read_plan(path: Path) -> "Plan":
    """The workload that it names is read by whoever makes the plan."""
    from gpuyard.specs.plan import Plan

    plan = read_spec(path, Plan, known_names())
    if isinstance(plan.workload, str):
        return plan
    return plan.model_copy(update={"workload": plan.workload.read_from(path)})


def read_offers(path: Path) -> "Offers":
    from gpuyard.specs.offers import Offers

    return read_spec(path, Offers, known_names())


def read_site(path: Path) -> "Site":
    from gpuyard.specs.site import Site

    return read_spec(path, Site, known_names())


def read_sweep(path: Path) -> "SweepFile":
    """The files that it names are read by whoever runs it."""
    from gpuyard.specs.sweep import SweepFile

    return read_spec(path, SweepFile, known_names())


def read_deployment(path: Path) -> "Deployment":
    """The cluster that it names is read by whoever builds it."""
    from gpuyard.specs.deployment import Deployment

    return read_spec(path, Deployment, known_names())


def read_job(path: Path) -> "JobSpec":
    """The workload that it names is read by whoever wants its curve."""
    from gpuyard.specs.job import JobSpec

    return read_spec(path, JobSpec, known_names())


def is_file(name_or_path: str, directory: Path) -> bool:
    """Whether a command line names a file there, and not something of the catalog."""
    if name_or_path.endswith((".yaml", ".yml")):
        return True
    try:
        return (directory / name_or_path).is_file()
    except OSError:  # no file can have a name as long
        return False
