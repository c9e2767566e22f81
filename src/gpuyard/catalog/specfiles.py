"""Spec files read with every name checked against the catalog; a catalog name does instead of a file."""

from pathlib import Path

from gpuyard.catalog.gpus import gpus
from gpuyard.catalog.links import links
from gpuyard.catalog.machines import machines
from gpuyard.catalog.models import models
from gpuyard.errors import UnknownName
from gpuyard.specs import Cluster, KnownNames, Network, Study, Workload, read_spec


def known_names() -> KnownNames:
    """Every name that a spec may use, by kind."""
    return {
        "GPU": frozenset(gpus().ids()),
        "link": frozenset(links().ids()),
        "machine": frozenset(machines().ids()),
        "model": frozenset(models().ids()),
    }


def read_workload(name_or_path: str, beside: Path = Path()) -> Workload:
    """A workload file, or a catalog model as a workload with synthetic data."""
    if _is_file(name_or_path, beside):
        return read_spec(beside / name_or_path, Workload, known_names())
    if name_or_path not in models().ids():
        raise UnknownName("workload file or catalog model", name_or_path, models().ids())
    return Workload(name=name_or_path, model=name_or_path)


def read_cluster(name_or_path: str, beside: Path = Path()) -> Cluster:
    """A cluster file, or one catalog machine as a cluster of one node."""
    if _is_file(name_or_path, beside):
        return read_spec(beside / name_or_path, Cluster, known_names())
    machine = machines().get(name_or_path) if name_or_path in machines().ids() else None
    if machine is None:
        raise UnknownName("cluster file or catalog machine", name_or_path, machines().ids())
    network = Network(link=machine.nic_link, rails=machine.nics) if machine.nic_link else None
    return Cluster(name=machine.name, machine=machine.id, network=network)


def read_study(path: Path) -> Study:
    """A study file; the files it names are read by whoever runs it."""
    return read_spec(path, Study, known_names())


def _is_file(name_or_path: str, beside: Path) -> bool:
    return name_or_path.endswith((".yaml", ".yml")) or (beside / name_or_path).is_file()
