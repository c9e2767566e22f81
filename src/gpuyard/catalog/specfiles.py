"""Read spec files, and check every name in them against the catalog; a catalog model can replace a workload file.

The larger specs, and the tables that only they use, are imported when needed, so that a prediction starts sooner.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.catalog.hardware import gpus, links, machines
from gpuyard.catalog.models import models
from gpuyard.catalog.prices import past_prices, prices
from gpuyard.catalog.transformers import transformers
from gpuyard.errors import UnknownName, UserMistake, advise_code, is_code
from gpuyard.specs import Dataset, KnownNames, Workload, read_spec
from gpuyard.specs.base import find_kind

if TYPE_CHECKING:
    from gpuyard.specs.deployment import Deployment
    from gpuyard.specs.job import JobSpec
    from gpuyard.specs.offers import Offers
    from gpuyard.specs.plan import Plan
    from gpuyard.specs.site import Site
    from gpuyard.specs.study import Study
    from gpuyard.specs.sweep import SweepFile

# the four speakers of the founding experiment, with 12,000 numbers of 4 bytes per clip
_SPOKEN_DIGITS = Dataset(samples=2000, bytes_per_sample=48_000, source="spoken-digits")


def _offers() -> frozenset[str]:
    from gpuyard.catalog.prices import build_ids

    return frozenset((*prices().ids(), *machines().ids(), *build_ids()))


def _priced_machines() -> frozenset[str]:
    from gpuyard.catalog.prices import priced_machine_ids

    return frozenset(priced_machine_ids())


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
    "model": lambda: frozenset((*models().ids(), *transformers().ids())),
    "instance": lambda: frozenset([*prices().ids(), *past_prices().ids()]),
    "cloud": lambda: frozenset(price.cloud for price in prices()),
    "offer": _offers,
    "machine with a price": _priced_machines,
    "PDU": _pdus,
    "plug": _plugs,
    "region": _regions,
}


class _Names(Mapping[str, frozenset[str]]):
    """The names of each kind, read when a spec first uses that kind: a cluster needs no prices."""

    def __getitem__(self, kind: str) -> frozenset[str]:
        return _NAMES[kind]()

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


def known_names() -> KnownNames:
    """Return all names that a spec may use, by kind."""
    return _Names()


def read_workload(name_or_path: str, directory: Path = Path()) -> Workload:
    """Read a workload file, or build a workload with synthetic data from a catalog model or a `config.json`."""
    if name_or_path.endswith(".json"):
        path = str(directory / name_or_path)
        return Workload(name=_name_of_config(path), model=path)
    if name_or_path.endswith(".py") and not (directory / name_or_path).is_file():
        raise UserMistake(f"{name_or_path} not found")
    if is_code(name_or_path):
        raise UserMistake(
            f"{name_or_path} is code: {advise_code(name_or_path)}, and pass the file that it writes"
        )
    if is_file(name_or_path, directory):
        file = directory / name_or_path
        return read_spec(file, Workload, known_names()).copy_with_file(file)
    model = _find_model(name_or_path, directory)
    if model is None:
        names = known_names()
        raise UnknownName(
            "model",
            name_or_path,
            names["model"],
            actual_kind=find_kind(name_or_path, names),
            searched="workload file or catalog model",
        )
    clips = _SPOKEN_DIGITS if model.startswith("spoken-digits") else None
    return Workload(name=model, model=model, dataset=clips)


def _find_model(name: str, directory: Path) -> str | None:
    """Return the catalog's model of this name, in upper or lower case, also after a Hugging Face organization."""
    ids = {*models().ids(), *transformers().ids()}
    if name.lower() in ids:
        return name.lower()
    with suppress(OSError):  # the text is too long for a path
        if name and (directory / name).is_dir():
            raise UserMistake(f"{name} is a directory; name a *.workload.yaml or config.json in it")
    model = name.partition("/")[2].lower()
    return model if model in ids else None


def _name_of_config(path: str) -> str:
    """Return a name for a model: its folder's if the file is a plain config.json."""
    file = Path(path)
    parent = file.absolute().parent.name
    return parent if file.stem == "config" and parent else file.stem


def read_study(path: Path) -> "Study":
    """Read a study, but not the files that it names."""
    from gpuyard.specs.study import Study

    return read_spec(path, Study, known_names())


def read_plan(path: Path) -> "Plan":
    """Read a plan, but not a workload file that it names."""
    from gpuyard.specs.plan import Plan

    plan = read_spec(path, Plan, known_names())
    if isinstance(plan.workload, str):
        return plan
    return plan.model_copy(update={"workload": plan.workload.copy_with_file(path)})


def read_offers(path: Path) -> "Offers":
    from gpuyard.specs.offers import Offers

    return read_spec(path, Offers, known_names())


def read_site(path: Path) -> "Site":
    from gpuyard.specs.site import Site

    return read_spec(path, Site, known_names())


def read_sweep(path: Path) -> "SweepFile":
    """Read a sweep, but not the files that it names."""
    from gpuyard.specs.sweep import SweepFile

    return read_spec(path, SweepFile, known_names())


def read_deployment(path: Path) -> "Deployment":
    """Read a deployment, but not a cluster file that it names."""
    from gpuyard.specs.deployment import Deployment

    return read_spec(path, Deployment, known_names())


def read_job(path: Path) -> "JobSpec":
    """Read a job, but not a workload file that it names."""
    from gpuyard.specs.job import JobSpec

    return read_spec(path, JobSpec, known_names())


def is_file(name_or_path: str, directory: Path) -> bool:
    """Return whether the text names a file in the directory and not something in the catalog."""
    if name_or_path.endswith((".yaml", ".yml")):
        return True
    try:
        return (directory / name_or_path).is_file()
    except OSError:  # the name is too long for a file
        return False
