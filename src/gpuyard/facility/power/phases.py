"""Which bank each cord goes to, so that the three phases differ by as little as they can.

Cords that draw the same are told apart by nobody, so what is searched is how many of each kind go on
each leg, the most even way first. Where there are too many ways only the most even beginnings are
followed, from the largest cords on, and then nothing is proven.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuyard.facility.power.rack_pdu import Bank

_MOST_WAYS = 20_000
_MOST_STEPS = 200  # on one leg: cords that are put somewhere, also those that are taken back


@dataclass(frozen=True, order=True)
class CordLoad:
    """One cord: what it adds to its leg, what it may add to its bank, and where it may go."""

    leg_va: float
    bank_va: float
    outlets: tuple[str, ...]


@dataclass(frozen=True)
class PhaseBalance:
    """For every load its bank and outlet, and how even the legs are.

    No assignment can have a difference below `least_va`; where that is the difference itself, this is
    the best there is.
    """

    plugged: tuple[tuple[int, str], ...]
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


def balance(loads: Sequence[CordLoad], banks: Sequence[Bank], volts: float) -> PhaseBalance | None:
    """The most even assignment that was found, or None where none keeps to outlets and breakers."""
    counted = Counter(loads)
    kinds = sorted(counted)
    legs = [_Leg(leg, kinds, banks, volts) for leg in range(max(b.leg for b in banks) + 1)]
    ways, differences, complete = _ways([counted[kind] for kind in kinds], kinds, legs)
    least = None if complete else 0.0
    for way, difference in zip(ways.tolist(), differences.tolist(), strict=True):
        on_legs = [leg.placed(tuple(counts)) for leg, counts in zip(legs, way, strict=True)]
        if least is None and not any(found is None and sure for found, sure in on_legs):
            least = difference
        if all(found is not None for found, _ in on_legs):
            return _result(loads, banks, [found or [] for found, _ in on_legs], least or 0.0)
    return None


_Placed = tuple[CordLoad, int, str]
"""A cord, its bank and its outlet."""


class _Leg:
    """The banks of one leg, and what was found for cords that were tried on them."""

    def __init__(
        self, leg: int, kinds: Sequence[CordLoad], banks: Sequence[Bank], volts: float
    ) -> None:
        self._banks = {i: bank for i, bank in enumerate(banks) if bank.leg == leg}
        self._kinds, self._volts = kinds, volts
        self._known: dict[tuple[int, ...], tuple[list[_Placed] | None, bool]] = {}
        self.most_va = sum(bank.usable_amps for bank in self._banks.values()) * volts
        self.outlets = sum(n for bank in self._banks.values() for _, n in bank.outlets)

    def most_of(self, kind: CordLoad) -> int:
        """So many of one kind, and no more, fit while the leg is empty."""
        return sum(
            min(
                sum(count for face, count in bank.outlets if face in kind.outlets),
                int(bank.usable_amps * self._volts / kind.bank_va + 1e-9)
                if kind.bank_va
                else 10**6,
            )
            for bank in self._banks.values()
        )

    def placed(self, counts: tuple[int, ...]) -> tuple[list[_Placed] | None, bool]:
        """Where so many of each kind go, or None; and whether that is certain."""
        if counts not in self._known:
            cords = [kind for kind, n in zip(self._kinds, counts, strict=True) for _ in range(n)]
            search = _BankSearch(cords, self._banks, self._volts)
            found = search.found()
            self._known[counts] = (found, found is not None or search.steps < _MOST_STEPS)
        return self._known[counts]


class _BankSearch:
    """The largest cord first, into the emptiest bank that has an outlet for it; taken back where that leaves
    another one without."""

    def __init__(self, cords: Sequence[CordLoad], banks: dict[int, Bank], volts: float) -> None:
        self._cords = sorted(cords, key=lambda cord: -cord.bank_va)
        self._free = {i: dict(bank.outlets) for i, bank in banks.items()}
        self._room = {i: bank.usable_amps * volts for i, bank in banks.items()}
        self._placed: list[_Placed] = []
        self.steps = 0

    def found(self) -> list[_Placed] | None:
        return self._placed if self._rest() else None

    def _rest(self) -> bool:
        if len(self._placed) == len(self._cords):
            return True
        cord = self._cords[len(self._placed)]
        for bank, face in self._choices(cord):
            if self.steps >= _MOST_STEPS:
                return False
            self.steps += 1
            self._free[bank][face] -= 1
            self._room[bank] -= cord.bank_va
            self._placed.append((cord, bank, face))
            if self._rest():
                return True
            self._placed.pop()
            self._room[bank] += cord.bank_va
            self._free[bank][face] += 1
        return False

    def _choices(self, cord: CordLoad) -> list[tuple[int, str]]:
        """The usual outlet first, then the emptiest bank; of banks that are alike only one."""
        alike: dict[tuple[float, ...], tuple[int, str]] = {}
        emptiest = sorted(self._free, key=lambda bank: -self._room[bank])
        for rank, face in enumerate(cord.outlets):
            for bank in emptiest:
                room, free = self._room[bank], self._free[bank]
                if free.get(face) and room >= cord.bank_va - 1e-6:
                    alike.setdefault((rank, room, *free.values()), (bank, face))
        return list(alike.values())


def _ways(
    counts: Sequence[int], kinds: Sequence[CordLoad], legs: Sequence[_Leg]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], bool]:
    """How many of each kind go on each leg (way × leg × kind), the most even first; how far the legs differ
    then; and whether these are all ways that could fit."""
    most_va = np.array([leg.most_va for leg in legs]) + 1e-6
    outlets = np.array([leg.outlets for leg in legs])
    ways = np.zeros((1, len(legs), 0), dtype=np.int64)
    leg_va = np.zeros((1, len(legs)))
    bank_va, cords = np.zeros_like(leg_va), np.zeros((1, len(legs)), dtype=np.int64)
    complete = True
    for kind, count in reversed(list(zip(kinds, counts, strict=True))):
        splits = np.array(list(_splits(count, [leg.most_of(kind) for leg in legs])), dtype=np.int64)
        splits = splits.reshape(-1, len(legs))
        kept = max(_MOST_WAYS // max(len(splits), 1), 1)
        if len(ways) > kept:
            complete = False
            best = np.argsort(np.ptp(leg_va, axis=1), kind="stable")[:kept]
            ways, leg_va, bank_va, cords = ways[best], leg_va[best], bank_va[best], cords[best]
        before, here = np.divmod(np.arange(len(ways) * len(splits)), max(len(splits), 1))
        cords = cords[before] + splits[here]
        bank_va = bank_va[before] + splits[here] * kind.bank_va
        fits = np.all((bank_va <= most_va) & (cords <= outlets), axis=1)
        before, here = before[fits], here[fits]
        bank_va, cords = bank_va[fits], cords[fits]
        leg_va = leg_va[before] + splits[here] * kind.leg_va
        ways = np.concatenate([splits[here][:, :, None], ways[before]], axis=2)
    differences = np.round(np.ptp(leg_va, axis=1), 6)
    # among those that are as even, small cords come last on the first leg: any fixed order would do
    by_kind = ways.transpose(2, 1, 0).reshape(len(kinds) * len(legs), -1)
    order = np.lexsort((*by_kind[::-1], differences))
    return ways[order], differences[order], complete


def _splits(count: int, most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every way to share a number out, with no more than so many on each."""
    if len(most) == 1:
        if count <= most[0]:
            yield (count,)
        return
    for first in range(min(count, most[0]) + 1):
        for rest in _splits(count - first, most[1:]):
            yield (first, *rest)


def _result(
    loads: Sequence[CordLoad],
    banks: Sequence[Bank],
    on_legs: Sequence[list[_Placed]],
    least_va: float,
) -> PhaseBalance:
    waiting: dict[CordLoad, list[int]] = {}
    for index, load in enumerate(loads):
        waiting.setdefault(load, []).append(index)
    places: dict[int, tuple[int, str]] = {}
    for placed in on_legs:
        # the last ones of each kind are on the first leg, each leg's own in their order
        taken = {load: len(waiting[load]) - n for load, n in Counter(p[0] for p in placed).items()}
        for load, bank, face in placed:
            places[waiting[load].pop(taken[load])] = (bank, face)
    leg_va = [0.0] * len(on_legs)
    for index, load in enumerate(loads):
        leg_va[banks[places[index][0]].leg] += load.leg_va
    return PhaseBalance(
        tuple(places[index] for index in range(len(loads))), tuple(leg_va), least_va
    )
