"""A planned submission and its YAML: the output of `--dry-run` works unchanged with `kubectl apply`.

This module writes YAML itself so that every parser reads the same values. YAML 1.1 and 1.2 differ on `yes` and `0o7`, so all
texts that are not plain words are quoted, and terminal control characters are escaped.
"""

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuyard.jobs.engines.base import Request
from gpuyard.jobs.engines.kubernetes.draft import Manifest
from gpuyard.printable import make_json_printable, make_printable

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_AMBIGUOUS_WORDS = frozenset({"y", "yes", "n", "no", "on", "off", "true", "false", "null"})
_LINE_ENDS = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\ufeff": "\\ufeff"}


@dataclass(frozen=True)
class KubernetesRequest(Request):
    """Manifests for one namespace of one cluster; the first is the job's own object."""

    kind: str
    context: str | None
    """The kubeconfig's context; None if there is no kubeconfig."""
    namespace: str
    name: str
    manifests: tuple[Manifest, ...]
    version_known: bool = True
    """True if the server's version is known, on which the manifests depend."""

    def text(self) -> str:
        """Return YAML documents, with the caveats as comments."""
        comments = "".join(_format_comment(make_printable(caveat)) for caveat in self.caveats)
        return comments + "---\n".join(format_yaml(manifest) for manifest in self.manifests)

    def document(self) -> dict[str, Any]:
        return {**super().document(), "manifests": list(self.manifests)}


def _format_comment(sentence: str) -> str:
    lines = textwrap.wrap(sentence, 76, break_on_hyphens=False, break_long_words=False)
    return "# " + "\n#   ".join(lines) + "\n"


def format_yaml(manifest: Manifest) -> str:
    """Format one document so that every YAML 1.1 or 1.2 parser reads this value."""
    return "".join(f"{line}\n" for line in _format_lines(manifest))


def _format_lines(value: Any) -> Iterator[str]:
    """Format a mapping or list that is not empty."""
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    for key, item in items:
        prefix = "- " if key is None else f"{_format_scalar(key)}:"
        if not isinstance(item, dict | list | tuple) or not item:
            yield f"{prefix}{'' if key is None else ' '}{_format_scalar(item)}"
        elif key is None:
            first, *rest = _format_lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
        else:
            yield prefix
            yield from (f"  {line}" for line in _format_lines(item))


def _format_scalar(value: Any) -> str:
    if isinstance(value, str) and _WORD.fullmatch(value) and value.lower() not in _AMBIGUOUS_WORDS:
        return value
    text = make_json_printable(json.dumps(value, ensure_ascii=False))
    for character, escape in _LINE_ENDS.items():
        text = text.replace(character, escape)
    return text
