"""Assign cords to outlet banks so that the loads of the three phases differ as little as possible.

Cords with the same load are interchangeable, so the search only decides how many cords of each kind each leg gets. It
tries the most even split first. If there are too many splits, it follows only the most even partial ones, starting with
the largest cords. Then the result is not proven to be the best.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuyard.facilities.power.rack_pdu import Bank

_MAX_SPLITS = 20_000
_MAX_STEPS = 200  # per leg, backtracking included


@dataclass(frozen=True, order=True)
class CordLoad:
    """One cord: its load on the leg, its worst-case load on the bank, and the outlets that fit."""

    leg_va: float
    bank_va: float
    outlets: tuple[str, ...]


@dataclass(frozen=True)
class PhaseBalance:
    """The (bank, outlet) of each cord, and the load of each leg.

    No assignment has a smaller difference between legs than `min_difference_va`. If it equals the difference,
    this assignment is optimal.
    """

    outlets: tuple[tuple[int, str], ...]
    leg_va: tuple[float, ...]
    min_difference_va: float

    @property
    def difference_va(self) -> float:
        return max(self.leg_va) - min(self.leg_va)

    @property
    def proven(self) -> bool:
        """True if the difference is within 5% of a leg's mean load of the best possible."""
        mean = sum(self.leg_va) / len(self.leg_va)
        return self.difference_va - self.min_difference_va <= 0.05 * mean + 1e-6


def balance_phases(
    loads: Sequence[CordLoad], banks: Sequence[Bank], volts: float
) -> PhaseBalance | None:
    """Return the most even assignment, or None if no assignment respects all outlets and breakers."""
    counts = Counter(loads)
    kinds = sorted(counts)
    legs = [_Leg(leg, kinds, banks, volts) for leg in range(max(b.leg for b in banks) + 1)]
    splits, differences, complete = _list_splits([counts[kind] for kind in kinds], kinds, legs)
    min_difference = None if complete else 0.0
    for split, difference in zip(splits.tolist(), differences.tolist(), strict=True):
        on_legs = [leg.place(tuple(on_leg)) for leg, on_leg in zip(legs, split, strict=True)]
        impossible = any(cords is None and certain for cords, certain in on_legs)
        if min_difference is None and not impossible:
            min_difference = difference
        if all(cords is not None for cords, _ in on_legs):
            placed = [cords or [] for cords, _ in on_legs]
            return _collect(loads, banks, placed, min_difference or 0.0)
    return None


_PlacedLoad = tuple[CordLoad, int, str]
"""A cord, its bank, and its outlet."""


class _Leg:
    """The banks of one leg, with a cache of the placements tried on them."""

    def __init__(
        self, leg: int, kinds: Sequence[CordLoad], banks: Sequence[Bank], volts: float
    ) -> None:
        self._banks = {i: bank for i, bank in enumerate(banks) if bank.leg == leg}
        self._kinds, self._volts = kinds, volts
        self._cache: dict[tuple[int, ...], tuple[list[_PlacedLoad] | None, bool]] = {}
        self.max_va = sum(bank.usable_amps for bank in self._banks.values()) * volts
        self.outlets = sum(n for bank in self._banks.values() for _, n in bank.outlets)

    def max_count(self, kind: CordLoad) -> int:
        """Return how many cords of one kind fit on the empty leg."""
        return sum(
            min(
                sum(count for face, count in bank.outlets if face in kind.outlets),
                int(bank.usable_amps * self._volts / kind.bank_va + 1e-9)
                if kind.bank_va
                else 10**6,
            )
            for bank in self._banks.values()
        )

    def place(self, counts: tuple[int, ...]) -> tuple[list[_PlacedLoad] | None, bool]:
        """Place this many cords of each kind. Return (placement or None, whether that is certain)."""
        if counts not in self._cache:
            cords = [kind for kind, n in zip(self._kinds, counts, strict=True) for _ in range(n)]
            search = _BankSearch(cords, self._banks, self._volts)
            placed = search.run()
            self._cache[counts] = (placed, placed is not None or search.steps < _MAX_STEPS)
        return self._cache[counts]


class _BankSearch:
    """A backtracking search that puts the largest cord first into the emptiest bank with a suitable outlet."""

    def __init__(self, cords: Sequence[CordLoad], banks: dict[int, Bank], volts: float) -> None:
        self._cords = sorted(cords, key=lambda cord: -cord.bank_va)
        self._free = {i: dict(bank.outlets) for i, bank in banks.items()}
        self._free_va = {i: bank.usable_amps * volts for i, bank in banks.items()}
        self._placed: list[_PlacedLoad] = []
        self.steps = 0

    def run(self) -> list[_PlacedLoad] | None:
        return self._placed if self._place_rest() else None

    def _place_rest(self) -> bool:
        if len(self._placed) == len(self._cords):
            return True
        cord = self._cords[len(self._placed)]
        for bank, face in self._list_choices(cord):
            if self.steps >= _MAX_STEPS:
                return False
            self.steps += 1
            self._free[bank][face] -= 1
            self._free_va[bank] -= cord.bank_va
            self._placed.append((cord, bank, face))
            if self._place_rest():
                return True
            self._placed.pop()
            self._free_va[bank] += cord.bank_va
            self._free[bank][face] += 1
        return False

    def _list_choices(self, cord: CordLoad) -> list[tuple[int, str]]:
        """Return (bank, outlet), the usual outlet first, then the emptiest bank; equal banks count once."""
        choices: dict[tuple[float, ...], tuple[int, str]] = {}
        emptiest = sorted(self._free, key=lambda bank: -self._free_va[bank])
        for rank, face in enumerate(cord.outlets):
            for bank in emptiest:
                free_va, free = self._free_va[bank], self._free[bank]
                if free.get(face) and free_va >= cord.bank_va - 1e-6:
                    choices.setdefault((rank, free_va, *free.values()), (bank, face))
        return list(choices.values())


def _list_splits(
    counts: Sequence[int], kinds: Sequence[CordLoad], legs: Sequence[_Leg]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], bool]:
    """List the splits of the cords over the legs, the most even first.

    Return the counts (split × leg × kind), the difference between legs in each split, and whether the list
    contains every split that could fit.
    """
    max_va = np.array([leg.max_va for leg in legs]) + 1e-6
    outlets = np.array([leg.outlets for leg in legs])
    splits = np.zeros((1, len(legs), 0), dtype=np.int64)
    leg_va = np.zeros((1, len(legs)))
    bank_va, cords = np.zeros_like(leg_va), np.zeros((1, len(legs)), dtype=np.int64)
    complete = True
    for kind, count in reversed(list(zip(kinds, counts, strict=True))):
        shares = np.array(
            list(_share_out(count, [leg.max_count(kind) for leg in legs])), dtype=np.int64
        ).reshape(-1, len(legs))
        max_kept = max(_MAX_SPLITS // max(len(shares), 1), 1)
        if len(splits) > max_kept:
            complete = False
            best = np.argsort(np.ptp(leg_va, axis=1), kind="stable")[:max_kept]
            splits, leg_va, bank_va, cords = splits[best], leg_va[best], bank_va[best], cords[best]
        before, here = np.divmod(np.arange(len(splits) * len(shares)), max(len(shares), 1))
        cords = cords[before] + shares[here]
        bank_va = bank_va[before] + shares[here] * kind.bank_va
        fits = np.all((bank_va <= max_va) & (cords <= outlets), axis=1)
        before, here = before[fits], here[fits]
        bank_va, cords = bank_va[fits], cords[fits]
        leg_va = leg_va[before] + shares[here] * kind.leg_va
        splits = np.concatenate([shares[here][:, :, None], splits[before]], axis=2)
    differences = np.round(np.ptp(leg_va, axis=1), 6)
    # ties are broken by the counts themselves: any fixed order would do
    by_kind = splits.transpose(2, 1, 0).reshape(len(kinds) * len(legs), -1)
    order = np.lexsort((*by_kind[::-1], differences))
    return splits[order], differences[order], complete


def _share_out(count: int, limits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every way to share out a number, with at most `limits[i]` in place i."""
    if len(limits) == 1:
        if count <= limits[0]:
            yield (count,)
        return
    for first in range(min(count, limits[0]) + 1):
        for rest in _share_out(count - first, limits[1:]):
            yield (first, *rest)


def _collect(
    loads: Sequence[CordLoad],
    banks: Sequence[Bank],
    on_legs: Sequence[list[_PlacedLoad]],
    min_difference_va: float,
) -> PhaseBalance:
    waiting: dict[CordLoad, list[int]] = {}
    for index, load in enumerate(loads):
        waiting.setdefault(load, []).append(index)
    outlets: dict[int, tuple[int, str]] = {}
    for placed in on_legs:
        # the first leg gets the last cords of each kind; within a leg, cords keep their order
        counts = Counter(load for load, _, _ in placed)
        first = {load: len(waiting[load]) - count for load, count in counts.items()}
        for load, bank, face in placed:
            outlets[waiting[load].pop(first[load])] = (bank, face)
    leg_va = [0.0] * len(on_legs)
    for index, load in enumerate(loads):
        leg_va[banks[outlets[index][0]].leg] += load.leg_va
    return PhaseBalance(
        tuple(outlets[index] for index in range(len(loads))), tuple(leg_va), min_difference_va
    )
