"""Shapes of well-known transformers, from their publishers' configuration files."""

import functools

from pydantic import Field

from gpuyard.catalog.tables import Fact, FactTable, read_csv_rows
from gpuyard.specs.transformer import TransformerShape

_OWN = ("id", "name", "parameters_billion", "source", "date")


class TransformerModel(Fact):
    """A published transformer and its number of parameters as its publisher counts them."""

    name: str
    parameters_billion: float = Field(gt=0)
    shape: TransformerShape


@functools.cache
def transformers() -> FactTable[TransformerModel]:
    """Return the transformers that gpuyard knows by shape."""
    rows = []
    for row in read_csv_rows("transformers.csv"):
        cells = {name: cell for name, cell in row.items() if cell}
        shape = {name: cell for name, cell in cells.items() if name not in _OWN}
        rows.append({**{name: cells[name] for name in _OWN}, "shape": shape})
    return FactTable("model", map(TransformerModel.model_validate, rows))
