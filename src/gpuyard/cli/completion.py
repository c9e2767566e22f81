"""Shell completion for options whose names come from the catalog, from installed packages, or from lists of choices.

The functions import what they read only when a shell asks for names.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, get_args


def complete_list(choices: Any) -> Callable[[str], list[str]]:
    """Complete the last name of a list with commas, like "fp32,bf16"."""

    def complete(incomplete: str) -> list[str]:
        first, comma, last = incomplete.rpartition(",")
        return [f"{first}{comma}{name}" for name in get_args(choices) if name.startswith(last)]

    return complete


def complete_engines() -> list[str]:
    """List the engines that run jobs, also those of other packages."""
    from gpuyard.jobs.engines.base import list_engine_names

    return list_engine_names()


def complete_examples() -> list[str]:
    """List the examples that are shipped with gpuyard."""
    from gpuyard.api.starter_files import list_examples

    return list_examples()


def _complete_rows(module: str, table: str) -> Callable[[str], list[str]]:
    """Return a function that completes the ids of a catalog table."""

    def complete(incomplete: str) -> list[str]:
        ids: Iterable[str] = getattr(import_module(module), table)().ids()
        return [name for name in ids if name.lower().startswith(incomplete.lower())]

    return complete


complete_gpus = _complete_rows("gpuyard.catalog", "gpus")
complete_links = _complete_rows("gpuyard.catalog", "links")
complete_models = _complete_rows("gpuyard.catalog", "models")
complete_cpus = _complete_rows("gpuyard.catalog.hardware", "cpus")
complete_storage = _complete_rows("gpuyard.catalog.fabric", "storage_options")
complete_switches = _complete_rows("gpuyard.catalog.fabric", "switches")
complete_places = _complete_rows("gpuyard.catalog.electricity", "electricity_prices")
complete_plugs = _complete_rows("gpuyard.catalog.facility", "plugs")


def complete_clouds() -> list[str]:
    """List the clouds of the price table."""
    from gpuyard.catalog import prices

    return sorted({price.cloud for price in prices()})


def complete_tables() -> list[str]:
    """List the published tables that predictions are compared with."""
    from gpuyard.catalog.published import list_tables

    return list_tables()


def complete_site_kinds() -> list[str]:
    """List the kinds of sites."""
    from gpuyard.specs.site import SiteKind

    return list(get_args(SiteKind))
