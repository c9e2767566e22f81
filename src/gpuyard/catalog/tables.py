"""The base of every catalog table: rows that name their source, read once from the package's data files."""

import csv
import datetime
import tomllib
from collections.abc import Iterable, Iterator
from html import escape
from importlib import resources
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from gpuyard.errors import MissingRequirement, UnknownName


class Fact(BaseModel):
    """A row of a table, with its source and the date when the source was published or read."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    id: str = Field(min_length=1)
    source: str = Field(min_length=1)
    date: datetime.date

    def document(self) -> dict[str, Any]:
        """Return the row as `gpuyard catalog … --json` prints it."""
        return self.model_dump(mode="json")


F = TypeVar("F", bound=Fact)


class FactTable(Generic[F]):
    """Facts of one kind in the order of their file, each with a unique id."""

    def __init__(self, kind: str, facts: Iterable[F]) -> None:
        self.kind = kind
        self._facts: dict[str, F] = {}
        for fact in facts:
            if fact.id in self._facts:
                raise ValueError(f"two {kind} rows are called {fact.id!r}")
            self._facts[fact.id] = fact

    def get(self, name: str) -> F:
        """Return the fact with this id. Raise UnknownName, which suggests the closest one."""
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

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the rows as `gpuyard catalog … --json` prints them."""
        return [fact.document() for fact in self]

    def to_pandas(self) -> Any:
        """Return the table as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise MissingRequirement(
                "to_pandas() needs pandas, which is not installed: pip install pandas"
            ) from None
        return pandas.DataFrame(self.to_dict())

    def _repr_html_(self) -> str:
        """Draw the table in a notebook, without columns that no row has."""
        rows = self.to_dict()
        names = [key for key in (rows[0] if rows else {}) if any(row[key] for row in rows)]
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_format(row[name]))}</td>" for name in names) + "</tr>"
            for row in rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def __repr__(self) -> str:
        return f"<{len(self)} {self.kind} rows: {', '.join(self.ids()[:5])}{', …' if len(self) > 5 else ''}>"


def _format(value: object) -> str:
    return "" if value is None else str(value)


def read_toml(kind: str, fact: type[F], file_name: str) -> FactTable[F]:
    """Read a data file with one `[id]` table per fact."""
    rows: dict[str, dict[str, Any]] = tomllib.loads(_read_data(file_name))
    return FactTable(kind, (fact.model_validate({"id": name, **row}) for name, row in rows.items()))


def read_csv(kind: str, fact: type[F], file_name: str) -> FactTable[F]:
    """Read a data file with one line per fact; an empty cell is an unknown value."""
    rows = (
        {column: cell for column, cell in row.items() if cell} for row in read_csv_rows(file_name)
    )
    return FactTable(kind, (fact.model_validate(row) for row in rows))


def read_csv_rows(file_name: str) -> list[dict[str, str]]:
    """Read the lines of a data file as mappings from column to cell."""
    return list(csv.DictReader(_read_data(file_name).splitlines()))


def _read_data(file_name: str) -> str:
    return (resources.files(__package__) / "data" / file_name).read_text(encoding="utf-8")
