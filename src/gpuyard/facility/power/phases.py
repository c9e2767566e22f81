"""Which bank each cord goes to, so that the three phases differ by as little as they can.

Cords that draw the same are told apart by nobody, so what is searched is how many of each kind go on
each leg. That search is exact where it can be gone through; past that CP-SAT takes over where OR-Tools
is installed, and else the largest cord goes to the emptiest leg, without a proof.
"""

import itertools
import math
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.facility.power.phase_model import solve_banks
from gpuyard.facility.power.rack_pdu import Bank

_MOST_WAYS = 20_000


@dataclass(frozen=True, order=True)
class Load:
    """One cord: what it adds to its leg, what it may add to its bank, and where it may go."""

    leg_va: float
    bank_va: float
    outlets: tuple[str, ...]


@dataclass(frozen=True)
class Balance:
    """For every load its bank and outlet, and how even the legs are.

    No assignment can have a difference below `least_va`; where that is the difference itself, this is
    the best there is.
    """

    places: tuple[tuple[int, str], ...]
    leg_va: tuple[float, ...]
    least_va: float

    @property
    def difference_va(self) -> float:
        return max(self.leg_va) - min(self.leg_va)

    @property
    def proven(self) -> bool:
        """The best, or within 5 % of a leg's mean load of it."""
        mean = sum(self.leg_va) / len(self.leg_va)
        return self.difference_va - self.least_va <= 0.05 * mean + 1e-6


def balance(loads: Sequence[Load], banks: Sequence[Bank], volts: float) -> Balance | None:
    """The most even assignment that was found, or None where none keeps to outlets and breakers."""
    legs = max(bank.leg for bank in banks) + 1
    if legs == 1:
        places = place_on_banks(list(enumerate(loads)), banks, volts)
        return None if places is None else _result(loads, banks, places, 1, 0.0)
    kinds = Counter(loads)
    if math.prod(math.comb(count + legs - 1, legs - 1) for count in kinds.values()) <= _MOST_WAYS:
        found, least = _searched(loads, kinds, banks, legs, volts)
        if math.isinf(least):
            return None
        if found is not None and found.difference_va <= least + 1e-9:
            return found
    else:
        found, least = _greedy(loads, banks, legs, volts), 0.0
    modelled = solve_banks(loads, banks, volts)
    if modelled is not None:
        places, bound = modelled
        better = _result(loads, banks, places, legs, max(bound, least))
        if found is None or better.difference_va <= found.difference_va:
            return better
        return Balance(found.places, found.leg_va, max(bound, least))
    return found


def _searched(
    loads: Sequence[Load], kinds: Counter[Load], banks: Sequence[Bank], legs: int, volts: float
) -> tuple[Balance | None, float]:
    """Every way to share the kinds out over the legs, the most even first; and the least difference
    that any assignment can have, infinite where there certainly is none."""
    order = sorted(kinds)
    ways = []
    caps = [[_most_on(kind, banks, leg, volts) for leg in range(legs)] for kind in order]
    splits = [
        [split for split in _split(kinds[kind], legs) if all(map(operator.le, split, cap))]
        for kind, cap in zip(order, caps, strict=True)
    ]
    for way in itertools.product(*splits):
        leg_va = [
            sum(kind.leg_va * counts[leg] for kind, counts in zip(order, way, strict=True))
            for leg in range(legs)
        ]
        ways.append((round(max(leg_va) - min(leg_va), 6), way))
    ways.sort(key=lambda scored: scored[0])
    least: float | None = None
    for difference, way in ways:
        places, certain = _placed_by_leg(loads, order, way, banks, volts)
        if least is None and not (places is None and certain):
            least = difference
        if places is not None:
            bound = difference if least is None else least
            return _result(loads, banks, places, legs, bound), bound
    return None, math.inf if least is None else least


def _most_on(kind: Load, banks: Sequence[Bank], leg: int, volts: float) -> int:
    """So many of one kind, and no more, fit on an empty leg."""
    return sum(
        min(
            sum(count for face, count in bank.outlets if face in kind.outlets),
            int(bank.usable_amps * volts / kind.bank_va + 1e-9) if kind.bank_va else 10**6,
        )
        for bank in banks
        if bank.leg == leg
    )


def _split(count: int, legs: int) -> Iterator[tuple[int, ...]]:
    if legs == 1:
        yield (count,)
        return
    for first in range(count + 1):
        for rest in _split(count - first, legs - 1):
            yield (first, *rest)


def _placed_by_leg(
    loads: Sequence[Load],
    order: Sequence[Load],
    way: Sequence[tuple[int, ...]],
    banks: Sequence[Bank],
    volts: float,
) -> tuple[dict[int, tuple[int, str]] | None, bool]:
    """The places, or None and whether that is certain: filling banks one by one misses no way for
    cords of one kind, but may for a mix."""
    waiting = {kind: [i for i, load in enumerate(loads) if load == kind] for kind in order}
    places: dict[int, tuple[int, str]] = {}
    for leg in range(len(way[0])):
        shares = [(kind, counts[leg]) for kind, counts in zip(order, way, strict=True)]
        on_leg = [(waiting[kind].pop(), kind) for kind, count in shares for _ in range(count)]
        placed = place_on_banks(on_leg, banks, volts, leg)
        if placed is None:
            return None, sum(count > 0 for _, count in shares) == 1
        places |= placed
    return places, True


def place_on_banks(
    loads: Sequence[tuple[int, Load]], banks: Sequence[Bank], volts: float, leg: int = 0
) -> dict[int, tuple[int, str]] | None:
    """The largest cord into the emptiest bank of the leg that has an outlet for it left."""
    free = {i: dict(bank.outlets) for i, bank in enumerate(banks) if bank.leg == leg}
    room = {i: banks[i].usable_amps * volts for i in free}
    places: dict[int, tuple[int, str]] = {}
    for index, load in sorted(loads, key=lambda one: (-one[1].bank_va, one[0])):
        choices = [
            (load.outlets.index(face), -room[i], i, face)
            for i, outlets in free.items()
            for face, left in outlets.items()
            if left and face in load.outlets and room[i] >= load.bank_va - 1e-6
        ]
        if not choices:
            return None
        _, _, bank, face = min(choices)
        free[bank][face] -= 1
        room[bank] -= load.bank_va
        places[index] = (bank, face)
    return places


def _greedy(
    loads: Sequence[Load], banks: Sequence[Bank], legs: int, volts: float
) -> Balance | None:
    on_leg: list[list[tuple[int, Load]]] = [[] for _ in range(legs)]
    for index, load in sorted(enumerate(loads), key=lambda one: -one[1].leg_va):
        emptiest = sorted(range(legs), key=lambda leg: sum(x.leg_va for _, x in on_leg[leg]))
        for leg in emptiest:
            if place_on_banks([*on_leg[leg], (index, load)], banks, volts, leg) is not None:
                on_leg[leg].append((index, load))
                break
        else:
            return None
    places: dict[int, tuple[int, str]] = {}
    for leg in range(legs):
        places |= place_on_banks(on_leg[leg], banks, volts, leg) or {}
    return _result(loads, banks, places, legs, 0.0)


def _result(
    loads: Sequence[Load],
    banks: Sequence[Bank],
    places: dict[int, tuple[int, str]],
    legs: int,
    least_va: float,
) -> Balance:
    leg_va = [0.0] * legs
    for index, load in enumerate(loads):
        leg_va[banks[places[index][0]].leg] += load.leg_va
    ordered = tuple(places[index] for index in range(len(loads)))
    return Balance(ordered, tuple(leg_va), least_va)
