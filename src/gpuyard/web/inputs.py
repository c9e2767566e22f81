"""Inputs from a page: names in the catalog and pasted text, never a path or code on the server.

The API also accepts files, because its callers are the user. A page's caller is not, so everything that could name a file
or a module is refused here.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.catalog.models import models
from gpuyard.catalog.specfiles import is_file, known_names
from gpuyard.catalog.transformers import transformers
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.specs.loading import parse_spec
from gpuyard.specs.workload import Workload
from gpuyard.workloads.code_trust import user_code
from gpuyard.workloads.disk_images import is_on_disk
from gpuyard.workloads.hugging_face import parse_hugging_face_config

if TYPE_CHECKING:
    from gpuyard.specs.site import Site

MAX_PASTED = 12_000
"""Characters of a pasted text: it is a part of the address of its view."""
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9@:./_+-]{0,79}")
_PASTED = Path("pasted.yaml")


def choose_workload(name: str, pasted: str) -> str | Workload:
    """Return a catalog model, or the workload of a pasted spec or `config.json`."""
    if pasted.strip():
        return parse_pasted_workload(pasted)
    if name not in models() and name not in transformers():
        raise UnknownName("model", name, [*models().ids(), *transformers().ids()])
    return name


def parse_pasted_workload(text: str) -> Workload:
    """Parse a workload spec or a Hugging Face `config.json`; refuse one that names code or files."""
    check_length(text)
    if text.lstrip().startswith("{"):
        shape = parse_hugging_face_config(text, "the pasted config.json")
        return Workload(name="pasted model", model=shape)
    workload = parse_spec(text, _PASTED, Workload, known_names())
    model = workload.model
    named = user_code(workload)
    if isinstance(model, str) and model not in models() and model not in transformers():
        named = (*named, model)
    if workload.dataset is not None and is_on_disk(workload.dataset.source):
        named = (*named, workload.dataset.source)
    if named:
        raise UserMistake(
            f"this page never imports code or reads files that a spec names ({', '.join(dict.fromkeys(named))}); describe "
            "the model by its shape, name a catalog model, or run gpuyard predict in your project"
        )
    return workload


def parse_pasted_site(text: str) -> "Site | None":
    """Parse a pasted site spec; None if there is none."""
    if not text.strip():
        return None
    from gpuyard.specs.site import Site

    check_length(text)
    return parse_spec(text, _PASTED, Site, known_names())


def check_cluster(text: str) -> str:
    """Return the short form of a cluster, like 2x8xh100@400G; refuse anything that could be a file."""
    name = text.strip()
    if (
        not _CLUSTER.fullmatch(name)
        or ".." in name
        or name.startswith("/")
        or is_file(name, Path())
    ):
        raise UserMistake(
            f"expected a machine or a short form like 2x8xh100@400G, got {name[:60]!r}; this page reads no files"
        )
    return name


def check_length(text: str) -> None:
    """Refuse a pasted text that is too long."""
    if len(text) > MAX_PASTED:
        raise UserMistake(
            f"a pasted text may have at most {MAX_PASTED:,} characters, got {len(text):,}"
        )


def private_data(is_own: bool) -> dict[str, Any]:
    """Return the options that leave out the server user's calibration and results for every other user."""
    return {} if is_own else {"calibration": "none", "results": "none"}
