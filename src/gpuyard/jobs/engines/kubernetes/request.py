"""What would be submitted, and the YAML of it: what `--dry-run` prints can be handed to `kubectl apply` as it is.

The YAML is our own few lines because it has to mean the same to everybody: the API server's reader takes `yes` and
`0o7` for other things than ours does, so each text that is not plainly a word is quoted, and what a terminal would
obey is an escape.
"""

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuyard.jobs.engines.base import Request
from gpuyard.jobs.engines.kubernetes.draft import Manifest
from gpuyard.printable import printable, printable_json

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_MEANT_OTHERWISE = frozenset({"y", "yes", "n", "no", "on", "off", "true", "false", "null"})
_LINE_ENDS = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\ufeff": "\\ufeff"}


@dataclass(frozen=True)
class KubernetesRequest(Request):
    """Manifests for one namespace of one cluster; the first is the job's own."""

    kind: str
    context: str | None
    """Of the kubeconfig; None where there is none here."""
    namespace: str
    name: str
    manifests: tuple[Manifest, ...]
    caveats: tuple[str, ...] = ()

    def text(self) -> str:
        """Documents of YAML, with what to know about them as comments."""
        comments = "".join(_comment(printable(caveat)) for caveat in self.caveats)
        return comments + "---\n".join(yaml_text(manifest) for manifest in self.manifests)

    def document(self) -> dict[str, Any]:
        return {**super().document(), "manifests": list(self.manifests)}


def _comment(sentence: str) -> str:
    lines = textwrap.wrap(sentence, 76, break_on_hyphens=False, break_long_words=False)
    return "# " + "\n#   ".join(lines) + "\n"


def yaml_text(manifest: Manifest) -> str:
    """One document, which every reader of YAML 1.1 or 1.2 reads as this value."""
    return "".join(f"{line}\n" for line in _lines(manifest))


def _lines(value: Any) -> Iterator[str]:
    """Of a mapping or a list that has something."""
    items = value.items() if isinstance(value, dict) else ((None, each) for each in value)
    for key, each in items:
        lead = "- " if key is None else f"{_scalar(key)}:"
        if not isinstance(each, dict | list | tuple) or not each:
            yield f"{lead}{'' if key is None else ' '}{_scalar(each)}"
        elif key is None:
            first, *rest = _lines(each)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
        else:
            yield lead
            yield from (f"  {line}" for line in _lines(each))


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _WORD.fullmatch(value) and value.lower() not in _MEANT_OTHERWISE:
        return value
    text = printable_json(json.dumps(value, ensure_ascii=False))
    for character, escape in _LINE_ENDS.items():
        text = text.replace(character, escape)
    return text
