"""Everything gpuyard raises on purpose.

    GpuyardError             could not be done here: exit status 1
    ├── MissingRequirement   a package, device or right is not here; says how to get it
    └── UserMistake          what was asked for is wrong: exit status 2
        ├── BadQuantity      "10 GBit" where a rate was expected
        ├── UnknownName      a name that no table has, with the closest one that it has
        └── SpecError        a spec file, with file, line and key

`cli.main` is the only place that turns them into an exit status.
"""

import difflib
from collections.abc import Iterable


class GpuyardError(Exception):
    """Something could not be done; the message says what and the next step to try."""

    exit_status = 1


class MissingRequirement(GpuyardError):
    """This machine lacks something that the command needs."""


class UserMistake(GpuyardError):
    """The request itself is wrong; the message says what is allowed."""

    exit_status = 2


class BadQuantity(UserMistake):
    """A quantity that does not parse, or has the wrong unit."""


class UnknownName(UserMistake):
    """A name that is in no table; carries the closest one that is."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name = kind, name
        self.known = sorted(known)
        self.closest = closest_name(name, self.known)
        super().__init__(describe_unknown(kind, name, self.known))


class SpecError(UserMistake):
    """A spec file that cannot be used; the message names file, line and key."""


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, or None where nothing is near."""
    near = closest_names(name, known, most=1)
    return near[0] if near else None


def closest_names(name: str, known: Iterable[str], most: int = 4) -> list[str]:
    """Names that begin with this one, the shortest first; else the most alike; else one that has it inside."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    lowered = name.lower()
    longer = sorted((c for c in by_lower if len(lowered) > 1 and c.startswith(lowered)), key=len)
    alike = difflib.get_close_matches(lowered, by_lower, n=1, cutoff=0.5)
    inside = sorted((c for c in by_lower if lowered and lowered in c), key=len)
    return [by_lower[c] for c in (longer[:most] or alike or inside[:1])]


def describe_unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence: the name is unknown, and the closest valid one or all of the few there are."""
    names = sorted(known)
    near = [repr(candidate) for candidate in closest_names(name, names)]
    if near:
        choice = near[0] if len(near) == 1 else f"{', '.join(near[:-1])} or {near[-1]}"
        return f"no {kind} is called {name!r}; did you mean {choice}?"
    if len(names) <= 12:
        return f"no {kind} is called {name!r}; there are: {', '.join(names)}"
    return f"no {kind} is called {name!r}"
