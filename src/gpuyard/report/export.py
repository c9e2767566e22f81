"""Documents of answers in other formats than JSON: YAML, and CSV for their rows."""

import csv
import io
import json
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


def format_csv(rows: Any, columns: Sequence[str] = ()) -> str:
    """Format rows, or one, as CSV. Nested keys are joined with a dot, and lists inside a row are JSON."""
    listed = [rows] if isinstance(rows, Mapping) else rows
    flat = [_flatten(row) for row in replace_nonfinite(listed)]
    names = list(dict.fromkeys([*columns, *(column for row in flat for column in row)]))
    if not names:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return make_printable(text.getvalue())


def _flatten(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            flat[f"{prefix}{key}"] = json.dumps(value, ensure_ascii=False)
        else:
            flat[f"{prefix}{key}"] = value
    return flat
