"""What every table of the catalog has in common: facts that name their source, read once from the
data files that ship inside the package, and looked up by name."""

import csv
import datetime
import tomllib
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from gpuyard.errors import UnknownName


class Fact(BaseModel):
    """One row of a table: where it comes from, and when that was published or read."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    id: str = Field(min_length=1)
    source: str = Field(min_length=1)
    date: datetime.date


F = TypeVar("F", bound=Fact)


class FactTable(Generic[F]):
    """Facts of one kind, in the order of their file, each with an id of its own."""

    def __init__(self, kind: str, facts: Iterable[F]) -> None:
        self.kind = kind
        self._facts: dict[str, F] = {}
        for fact in facts:
            if fact.id in self._facts:
                raise ValueError(f"two {kind} rows are called {fact.id!r}")
            self._facts[fact.id] = fact

    def get(self, name: str) -> F:
        """The fact of this name; `UnknownName` with the closest one where there is none."""
        try:
            return self._facts[name]
        except KeyError:
            raise UnknownName(self.kind, name, self._facts) from None

    def ids(self) -> list[str]:
        return list(self._facts)

    def __contains__(self, name: object) -> bool:
        return name in self._facts

    def __iter__(self) -> Iterator[F]:
        return iter(self._facts.values())

    def __len__(self) -> int:
        return len(self._facts)


def read_toml(kind: str, fact: type[F], file_name: str) -> FactTable[F]:
    """A data file with one `[id]` table a fact."""
    rows: dict[str, dict[str, Any]] = tomllib.loads(_text(file_name))
    return FactTable(kind, (fact.model_validate({"id": name, **row}) for name, row in rows.items()))


def read_csv(kind: str, fact: type[F], file_name: str) -> FactTable[F]:
    """A data file with one line a fact; an empty cell is a value that is not known."""
    known = ({column: cell for column, cell in row.items() if cell} for row in csv_rows(file_name))
    return FactTable(kind, (fact.model_validate(row) for row in known))


def csv_rows(file_name: str) -> list[dict[str, str]]:
    """The lines of a data file, cell by column."""
    return list(csv.DictReader(_text(file_name).splitlines()))


def _text(file_name: str) -> str:
    return (resources.files(__package__) / "data" / file_name).read_text(encoding="utf-8")
