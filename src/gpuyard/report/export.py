"""Documents of answers in other formats than JSON: YAML, and CSV for their rows."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.printable import make_printable
from gpuyard.report.answer import replace_nonfinite


def format_yaml(document: Any) -> str:
    """Format a document as YAML with the keys of the JSON."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = io.StringIO()
    yaml.dump(replace_nonfinite(document), text)
    return make_printable(text.getvalue())


def format_csv(document: Any) -> str:
    """Format the rows of a document as CSV: its first list of rows, or the document itself as one row.

    Nested keys are joined with a dot, and lists inside a row with a semicolon.
    """
    rows = [_flatten(row) for row in find_rows(replace_nonfinite(document))]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return make_printable(text.getvalue())


def find_rows(document: Any) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a document."""
    if isinstance(document, Mapping):
        lists = (value for value in document.values() if _is_rows(value))
        return next(lists, [document])
    return document if _is_rows(document) else []


def _is_rows(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Mapping)


def _flatten(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            flat[f"{prefix}{key}"] = ";".join(map(str, value))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
