"""A user's notebooks."""

from collections.abc import Mapping
from typing import Any

from gpuyard.report.answer import Answer, Column, Part, Sentence, Table


def notebooks_answer(document: Mapping[str, Any]) -> Answer:
    """A row for each, and how to reach it."""
    found = document["notebooks"]
    if not found:
        return Answer([Sentence("You have no notebook that runs.")], document, verb="notebook")
    rows = [[one["id"], ", ".join(map(str, one["gpus"])), one["directory"]] for one in found]
    parts: list[Part] = [Table("", ("notebook", "GPU", Column("directory", 1)), rows)]
    parts += [Sentence(f"{one['id']}: {one['tunnel']}, then {one['url']}") for one in found]
    return Answer(parts, document, verb="notebook")
