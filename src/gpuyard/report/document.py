"""An answer for programs: one JSON document."""

import json
import math
from typing import Any

from gpuyard.printable import printable_json


def json_text(document: Any) -> str:
    """The document as text that ends with a line feed."""
    text = json.dumps(finite(document), indent=2, ensure_ascii=False, allow_nan=False)
    return printable_json(text) + "\n"


def picked(value: object, *names: str) -> dict[str, Any]:
    """Some of its attributes, under their own names."""
    return {name: getattr(value, name) for name in names}


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value
