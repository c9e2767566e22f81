"""Which rows of a catalog table are shown, and in which order."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.errors import UnknownName, UserMistake

if TYPE_CHECKING:
    from gpuyard.cli.catalog.view import View

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(?:Gi?B?)?", re.IGNORECASE)
GpuFilter = Annotated[
    str | None,
    typer.Option(
        "--gpu", metavar="ID", help="Rows of this GPU, or of all whose name contains this."
    ),
]
CloudFilter = Annotated[str | None, typer.Option("--cloud", help="Rows of this cloud.")]


def _gigabytes(given: str) -> float:
    """ "80", "80 GB" or "80 GiB": of memory they are called the same."""
    found = _MEMORY.fullmatch(given.strip())
    if found is None:
        raise typer.BadParameter(f"expected GB of memory, like 80 or '80 GB', got {given!r}")
    return float(found[1])


MemoryFilter = Annotated[
    float | None,
    typer.Option(
        "--min-memory",
        metavar="GB",
        parser=_gigabytes,
        help="Rows of GPUs with at least this much memory.",
    ),
]
SortOption = Annotated[
    str | None, typer.Option("--sort", metavar="COLUMN", help="Sort by a column, smallest first.")
]
DescendingOption = Annotated[
    bool, typer.Option("--descending", help="Sort the other way round: largest first.")
]
_NUMBER = re.compile(r"-?[\d,]*\.?\d+")


@dataclass(frozen=True)
class RowChoice:
    """What was asked for on the command line; a table without such a column is a mistake."""

    gpu: str | None = None
    cloud: str | None = None
    min_memory_gb: float | None = None
    sort: str | None = None
    descending: bool = False

    def of(self, view: "View") -> list[Any]:
        """The rows of a view that are wanted, in order."""
        rows = list(view.table)
        if self.gpu is not None:
            wanted = gpus_named(self.gpu)
            read = _reader(view.gpu, "--gpu", "GPU", view)
            rows = [row for row in rows if read(row) in wanted]
        if self.cloud is not None:
            read = _reader(view.cloud, "--cloud", "cloud", view)
            clouds = {name for row in rows if (name := read(row))}
            if self.cloud not in clouds:
                raise UnknownName(f"cloud in {view.called}", self.cloud, clouds)
            rows = [row for row in rows if read(row) == self.cloud]
        if self.min_memory_gb is not None:
            read = _reader(view.gpu, "--min-memory", "GPU", view)
            rows = [row for row in rows if _memory_gb(read(row)) >= self.min_memory_gb]
        return rows if self.sort is None else self._sorted(rows, view)

    def sorted_by(self, view: "View") -> str | None:
        """The column's name as it is shown."""
        if self.sort is None:
            return None
        head = {_plain(name): name for name in view.columns}.get(_plain(self.sort))
        if head is None:
            raise UnknownName(f"column of {view.called}", self.sort, view.columns)
        return head

    def _sorted(self, rows: Sequence[Any], view: "View") -> list[Any]:
        cell = view.columns[self.sorted_by(view) or ""]
        known = [row for row in rows if str(_or_empty(cell(row)))]
        empty = [row for row in rows if not str(_or_empty(cell(row)))]
        return [
            *sorted(known, key=lambda row: _order(cell(row)), reverse=self.descending),
            *empty,
        ]


def gpus_named(part: str) -> frozenset[str]:
    """The catalog's GPUs whose id has this in it; at least one."""
    from gpuyard.catalog import gpus

    found = frozenset(name for name in gpus().ids() if part.lower() in name)
    if not found:
        raise UnknownName("GPU", part, gpus().ids())
    return found


def _reader(
    read: Callable[[Any], str | None] | None, option: str, what: str, view: "View"
) -> Callable[[Any], str | None]:
    if read is None:
        raise UserMistake(f"{option}: {view.called} has no column of {what}s to choose by")
    return read


def _memory_gb(gpu: str | None) -> float:
    from gpuyard.catalog import gpus

    return gpus().get(gpu).memory_gb if gpu is not None and gpu in gpus() else 0.0


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9/%$]", "", name.lower())


def _or_empty(cell: object) -> object:
    return "" if cell is None else cell


def _order(cell: object) -> tuple[int, float, list[tuple[int, float, str]]]:
    """Numbers by their value, then words, in which numbers count as such."""
    text = str(_or_empty(cell))
    if _NUMBER.fullmatch(text):
        return 0, float(text.replace(",", "")), []
    parts = re.split(r"(\d+(?:\.\d+)?)", text.lower())
    return 1, 0.0, [(1, float(p), "") if p[:1].isdigit() else (0, 0.0, p) for p in parts]
