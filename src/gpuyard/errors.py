"""Everything gpuyard raises on purpose.

    GpuyardError             could not be done here: exit status 1
    ├── NotStored            what was measured can't be kept, and is carried along; in `measure.store`
    ├── NoAnswer             a scheduler or service was asked and said nothing: it may have been done or not
    ├── MissingRequirement   a package, device or right is not here; says how to get it
    └── UserMistake          what was asked for is wrong: exit status 2
        ├── BadQuantity      "10 GBit" where a rate was expected
        ├── CodeNotAllowed   a spec from elsewhere names code, and nobody has said that it may run
        ├── UnknownName      a name that no table has, with the closest one that it has
        └── SpecError        a spec file, with file, line and key

`cli.app` is the only place that turns them into an exit status.
"""

import re
from collections.abc import Iterable
from pathlib import Path


class GpuyardError(Exception):
    """Something could not be done; the message says what and the next step to try."""

    exit_status = 1


class MissingRequirement(GpuyardError):
    """This machine lacks something that the command needs."""


class NoAnswer(GpuyardError):
    """Who was asked said nothing: what was `sent` may have been done or not, and nothing may be concluded."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(message)


class UserMistake(GpuyardError):
    """The request itself is wrong; the message says what is allowed."""

    exit_status = 2


class BadQuantity(UserMistake):
    """A quantity that does not parse, or has the wrong unit."""


class CodeNotAllowed(UserMistake):
    """Code that a spec names, and why it is not taken for the user's own."""

    def __init__(self, file: Path, code: str, reason: str) -> None:
        self.file = file
        self.found = f"{file} names code: {code}, and {reason}"
        super().__init__(
            f"{self.found}, so it is not run unasked; read it, then add --allow-code, or run gpuyard "
            "in the project that it belongs to"
        )


class UnknownName(UserMistake):
    """A name that is in no table; carries the closest one that is."""

    def __init__(
        self, kind: str, name: str, known: Iterable[str], *, instead: str = "", called: str = ""
    ) -> None:
        self.kind, self.name = kind, name
        self.known = sorted(known)
        self.closest = closest_name(name, self.known)
        super().__init__(describe_unknown(kind, name, self.known, instead=instead, called=called))


class SpecError(UserMistake):
    """A spec file that cannot be used; the message names file, line and key."""


_SAME_START, _OTHER_START = (
    0.65,
    0.8,
)  # how alike two names are; few people misspell the first letter
_SHORT_LIST = 300  # characters of names that are listed where none is near
_LISTED_BY = {
    "GPU": "gpus",
    "link": "links",
    "machine": "machines",
    "model": "models",
    "instance": "prices",
    "price": "prices",
    "offer": "prices",
    "PDU": "pdus",
    "plug": "plugs",
    "switch": "switches",
}


_LONGEST_QUOTED = 120  # characters: nobody reads more of what is wrong, and comparing it takes time


def quoted(text: str) -> str:
    """What a user wrote, for a sentence: in quotes, on one line, and of a long one the beginning."""
    if len(text) <= _LONGEST_QUOTED:
        return repr(text)
    return f"{text[:_LONGEST_QUOTED]!r}… ({len(text):,} characters)"


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, or None where nothing is near."""
    near = closest_names(name, known, most=1)
    return near[0] if near else None


def closest_names(name: str, known: Iterable[str], most: int = 4) -> list[str]:
    """Names that begin with this one or have all of its parts, the shortest first; else the most alike."""
    if len(name) > _LONGEST_QUOTED:
        return []
    by_lower = {candidate.lower(): candidate for candidate in known}
    lowered = name.lower()
    if lowered in by_lower:
        return [by_lower[lowered]]
    shortest_first = sorted(by_lower, key=lambda candidate: (len(candidate), candidate))
    longer = [c for c in shortest_first if len(lowered) > 1 and c.startswith(lowered)]
    parts = _parts(lowered)
    with_all = [c for c in shortest_first if len(lowered) > 2 and parts <= _parts(c)]
    return [by_lower[c] for c in (longer or with_all or _most_alike(lowered, by_lower))[:most]]


def _parts(name: str) -> set[str]:
    return set(re.split(r"[\s/_-]+", name))


def _most_alike(name: str, known: Iterable[str]) -> list[str]:
    import difflib  # only a mistake needs it

    alike = difflib.get_close_matches(name, known, n=8, cutoff=_SAME_START)
    return [
        candidate
        for candidate in alike
        if candidate[0] == name[0]
        or difflib.SequenceMatcher(None, candidate, name).ratio() >= _OTHER_START
    ][:1]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'a' or 'b'?", or nothing where nothing is near."""
    near = [repr(candidate) for candidate in closest_names(name, known)]
    *others, last = near or [""]
    return f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if near else ""


def describe_unknown(
    kind: str, name: str, known: Iterable[str], *, instead: str = "", called: str = ""
) -> str:
    """One sentence: the name is unknown, and the closest valid one, or where the valid ones are.

    `instead` is the kind of thing that has this name, if another kind does; `called` is what was looked for,
    where that is more than a `kind`.
    """
    names = sorted(known)
    unknown = f"no {called or kind} is called {quoted(name)}"
    if instead:
        return f"{unknown}: it is {'an' if instead[0] in 'aeio' else 'a'} {instead}"
    if near := did_you_mean(name, names):
        return unknown + near
    listed = ", ".join(names)
    if kind in _LISTED_BY and len(listed) > _SHORT_LIST:
        return f"{unknown}; `gpuyard catalog {_LISTED_BY[kind]}` lists them"
    return f"{unknown}; there are: {listed}" if names else f"{unknown}; there is none"
