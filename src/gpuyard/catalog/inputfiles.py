"""Studies, plans, offers, sites and sweeps read with every name checked against the catalog.

Apart from workloads and clusters, because a prediction needs none of them and starts sooner without.
"""

from pathlib import Path

from gpuyard.catalog.specfiles import known_names
from gpuyard.specs import read_spec
from gpuyard.specs.offers import Offers
from gpuyard.specs.plan import Plan
from gpuyard.specs.site import Site
from gpuyard.specs.study import Study
from gpuyard.specs.sweep import SweepFile


def read_study(path: Path) -> Study:
    """A study file; the files it names are read by whoever runs it."""
    return read_spec(path, Study, known_names())


def read_plan(path: Path) -> Plan:
    """A plan file; the workload that it names is read by whoever makes the plan."""
    return read_spec(path, Plan, known_names())


def read_offers(path: Path) -> Offers:
    """A file of offers."""
    return read_spec(path, Offers, known_names())


def read_site(path: Path) -> Site:
    """A site file."""
    return read_spec(path, Site, known_names())


def read_sweep(path: Path) -> SweepFile:
    """A sweep file; the files it names are read by whoever runs it."""
    return read_spec(path, SweepFile, known_names())
