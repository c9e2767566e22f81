"""The same question as an integer program for OR-Tools' CP-SAT, where it is installed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gpuyard.facility.power.rack_pdu import Bank

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_SECONDS = 2.0
_CLOSE = 0.04  # of a leg's mean load: within that of the best, a proof is worth no more search


class LoadLike(Protocol):
    @property
    def leg_va(self) -> float: ...
    @property
    def bank_va(self) -> float: ...
    @property
    def outlets(self) -> tuple[str, ...]: ...


def solver_module() -> Any:
    """CP-SAT, or None without OR-Tools."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return None
    return cp_model


def solve_banks(
    loads: Sequence[LoadLike], banks: Sequence[Bank], volts: float
) -> tuple[dict[int, tuple[int, str]], float] | None:
    """Bank and outlet of every load with the legs as even as possible, and a bound on the difference."""
    cp = solver_module()
    if cp is None:
        return None
    model = cp.CpModel()
    chosen: dict[tuple[int, int, str], cp_model.IntVar] = {}
    for index, load in enumerate(loads):
        for b, bank in enumerate(banks):
            for face, _ in bank.outlets:
                if face in load.outlets:
                    chosen[index, b, face] = model.new_bool_var(f"{index} {b} {face}")
        mine = [var for (i, _, _), var in chosen.items() if i == index]
        if not mine:
            return None
        model.add_exactly_one(mine)
    for b, bank in enumerate(banks):
        for face, count in bank.outlets:
            model.add(sum(v for (_, x, f), v in chosen.items() if (x, f) == (b, face)) <= count)
        here = [(i, v) for (i, x, _), v in chosen.items() if x == b]
        # rounded up here and down there, so that no rounding ever overloads a breaker
        watts = sum(_up(loads[i].bank_va) * v for i, v in here)
        model.add(watts <= int(bank.usable_amps * volts + 1e-6))
    legs = max(bank.leg for bank in banks) + 1
    top = model.new_int_var(0, sum(_up(load.leg_va) for load in loads), "top")
    bottom = model.new_int_var(0, sum(_up(load.leg_va) for load in loads), "bottom")
    for leg in range(legs):
        carried = sum(
            round(loads[i].leg_va) * v for (i, b, _), v in chosen.items() if banks[b].leg == leg
        )
        model.add(carried <= top)
        model.add(carried >= bottom)
    model.minimize(top - bottom)
    solver = cp.CpSolver()
    solver.parameters.max_time_in_seconds = _SECONDS
    solver.parameters.num_workers = 1  # the same answer every time
    solver.parameters.random_seed = 0
    solver.parameters.absolute_gap_limit = _CLOSE * sum(load.leg_va for load in loads) / legs
    if solver.solve(model) not in {cp.OPTIMAL, cp.FEASIBLE}:
        return None
    places = {i: (b, face) for (i, b, face), var in chosen.items() if solver.value(var)}
    # watts were rounded: the bound holds within one for each cord
    return places, max(solver.best_objective_bound - len(loads), 0.0)


def _up(va: float) -> int:
    return int(va + 1 - 1e-6)
