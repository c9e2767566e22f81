"""The exceptions that gpuyard raises on purpose, and how their messages quote names.

    GpuyardError             the operation failed: exit status 1
    ├── NotStored            a measurement could not be saved; the error carries it (in `measure.store`)
    ├── MachineBusy          another process is measuring on this machine (in `measure.machine_lock`)
    ├── NoResponse           a scheduler or service did not respond; the request may have taken effect
    ├── MissingRequirement   a package, device, or permission is missing; the message says how to get it
    └── UserMistake          the request is wrong: exit status 2
        ├── BadQuantity      "10 GBit" instead of a rate
        ├── CodeNotAllowed   a spec from another place names code that the user has not allowed to run
        ├── UnknownName      a name that is not in a table, with the closest one that is
        └── SpecError        a mistake in a spec file, with file, line, and key

`cli.exits` is the only place that turns them into an exit status.
"""

import re
from collections.abc import Iterable
from pathlib import Path


class GpuyardError(Exception):
    """An operation that failed; the message says what failed and the next step to try."""

    exit_status = 1


class MissingRequirement(GpuyardError):
    """Something that the command needs and this machine lacks."""


class NoResponse(GpuyardError):
    """A scheduler or service that did not respond. If the request was `sent`, it may have taken effect."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(message)


class UserMistake(GpuyardError):
    """A request that is itself wrong; the message says what is allowed."""

    exit_status = 2


class BadQuantity(UserMistake):
    """A quantity that cannot be parsed or has the wrong unit."""


class CodeNotAllowed(UserMistake):
    """Code that a spec names, and the reason why gpuyard does not treat it as the user's own."""

    def __init__(self, file: Path, code: str, reason: str) -> None:
        self.file = file
        self.description = f"{file} names code: {code}, and {reason}"
        super().__init__(
            f"{self.description}, so gpuyard does not run it unless you allow it; read the code, then add "
            "--allow-code, or run gpuyard in the project that the spec belongs to"
        )


class UnknownName(UserMistake):
    """A name that is not in a table; carries the closest one that is."""

    def __init__(
        self,
        kind: str,
        name: str,
        valid: Iterable[str],
        *,
        actual_kind: str = "",
        searched: str = "",
    ) -> None:
        self.kind, self.name = kind, name
        names = sorted(valid)
        self.closest = closest_name(name, names)
        super().__init__(
            describe_unknown(kind, name, names, actual_kind=actual_kind, searched=searched)
        )


class SpecError(UserMistake):
    """A spec file that cannot be used; the message names file, line, and key."""


# people rarely misspell the first letter, so names that differ there must be more alike
_MIN_SIMILARITY_SAME_START = 0.65
_MIN_SIMILARITY_OTHER_START = 0.8
_MAX_LISTED_CHARACTERS = 300
_CATALOG_TABLES = {
    "GPU": "gpus",
    "link": "links",
    "machine": "machines",
    "machine or GPU": "gpus",
    "machine or instance": "machines` or `gpuyard catalog prices",
    "model": "models` or `gpuyard catalog transformers",
    "instance": "prices",
    "price": "prices",
    "offer": "prices",
    "PDU": "pdus",
    "plug": "plugs",
    "switch": "switches",
}
_MAX_QUOTED = 120  # characters: a longer text is not read, and comparing it takes time


def quote(text: str) -> str:
    """Put a user's text in quotes on one line, and shorten it if it is long."""
    if len(text) <= _MAX_QUOTED:
        return repr(text)
    return f"{text[:_MAX_QUOTED]!r}… ({len(text):,} characters)"


def closest_name(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that is most similar to this one, or None if none is similar."""
    matches = closest_names(name, valid, limit=1)
    return matches[0] if matches else None


def closest_names(name: str, valid: Iterable[str], limit: int = 4) -> list[str]:
    """Return the names that begin with this one or have all of its parts, otherwise the most similar one."""
    if len(name) > _MAX_QUOTED:
        return []
    by_lower = {candidate.lower(): candidate for candidate in valid}
    lowered = name.lower()
    if lowered in by_lower:
        return [by_lower[lowered]]
    shortest_first = sorted(by_lower, key=lambda candidate: (len(candidate), candidate))
    longer = [c for c in shortest_first if len(lowered) > 1 and c.startswith(lowered)]
    parts = _split_parts(lowered)
    with_all = [c for c in shortest_first if len(lowered) > 2 and parts <= _split_parts(c)]
    return [by_lower[c] for c in (longer or with_all or _find_similar(lowered, by_lower))[:limit]]


def _split_parts(name: str) -> set[str]:
    return set(re.split(r"[\s/_-]+", name))


def _find_similar(name: str, valid: Iterable[str]) -> list[str]:
    import difflib  # only a mistake needs it

    similar = difflib.get_close_matches(name, valid, n=8, cutoff=_MIN_SIMILARITY_SAME_START)
    return [
        candidate
        for candidate in similar
        if candidate[0] == name[0]
        or difflib.SequenceMatcher(None, candidate, name).ratio() >= _MIN_SIMILARITY_OTHER_START
    ][:1]


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return "; did you mean 'a' or 'b'?", or an empty string if no name is similar."""
    matches = [repr(candidate) for candidate in closest_names(name, valid)]
    *others, last = matches or [""]
    return f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if matches else ""


def is_code(name: str) -> bool:
    """Return whether a model's name is a Python file or importable code."""
    return name.endswith(".py") or bool(re.fullmatch(r"[\w.]+:[\w.]+", name))


def advise_code(name: str) -> str:
    """Return the command that writes a workload for a Python file or importable code."""
    if ":" in name:
        return f"write a workload for it with gpuyard init workload --model {name}"
    path = Path(name).with_suffix("")
    module = path.name if path.is_absolute() else ".".join(path.parts).lstrip(".")
    return (
        "write a workload that names the function in it that returns your model, with "
        f"gpuyard init workload --model {module}:FUNCTION"
    )


def describe_unknown(
    kind: str, name: str, valid: Iterable[str], *, actual_kind: str = "", searched: str = ""
) -> str:
    """Say that the name is unknown, and name the closest valid one or list the valid ones.

    `actual_kind` is the kind of thing that has this name, if another kind does. `searched` replaces `kind` in the
    sentence if more than one kind was searched.
    """
    names = sorted(valid)
    unknown = f"no {searched or kind} is called {quote(name)}"
    if kind == "model" and is_code(name):
        return f"{unknown}: {advise_code(name)}"
    if actual_kind:
        return f"{unknown}: it is {'an' if actual_kind[0] in 'aeio' else 'a'} {actual_kind}"
    if hint := did_you_mean(name, names):
        return unknown + hint
    choices = ", ".join(names)
    if kind in _CATALOG_TABLES and len(choices) > _MAX_LISTED_CHARACTERS:
        return f"{unknown}; `gpuyard catalog {_CATALOG_TABLES[kind]}` lists them"
    return f"{unknown}; choose from: {choices}" if names else f"{unknown}; none exist"
