"""Whether CPUs have the PCIe lanes for a machine's cards."""

from collections.abc import Sequence
from typing import Any

from gpuyard.hardware.lanes import LaneBudget
from gpuyard.report.answer import Answer, Bullets, Column, Part, Sentence, Table, Text


def lanes_answer(budgets: Sequence[LaneBudget], *, one: bool) -> Answer:
    """One CPU card by card, with what would help; or all of them, those that suffice first."""
    if one:
        (budget,) = budgets
        return Answer(_of_one(budget), _document(budget), title="PCIe lanes", verb="topo lanes")
    ordered = sorted(budgets, key=lambda b: (not b.fits, abs(b.left), b.cpu.date))
    return Answer(
        _of_all(ordered),
        {"cpus": [_document(budget) for budget in ordered]},
        title="PCIe lanes",
        verb="topo lanes",
    )


def _of_one(budget: LaneBudget) -> list[Part]:
    rows = [
        [cards.what, str(cards.count), f"x{cards.lanes_each}", str(cards.lanes)]
        for cards in budget.cards
    ]
    rows.append(["wanted", "", "", str(budget.wanted)])
    rows.append([f"on {_cpus(budget)}", "", "", str(budget.there)])
    parts: list[Part] = [
        Table(
            f"PCIe lanes of {_cpus(budget)}, PCIe {budget.cpu.pcie_generation}.0",
            ("what", "cards", "each", "lanes"),
            rows,
        ),
        _verdict(budget),
    ]
    if budget.slot.generation < budget.gpu.pcie_generation:
        parts.append(
            Sentence(
                f"The CPU has PCIe {budget.cpu.pcie_generation}.0, the GPU could do "
                f"{budget.gpu.pcie_generation}.0: its slot runs as {budget.slot}.",
                "caution",
            )
        )
    remedies = budget.remedies()
    if remedies:
        parts += [Sentence("What would feed them:"), Bullets(remedies)]
    if budget.cpu.note:
        parts.append(Sentence(f"{budget.cpu.name}: {budget.cpu.note}", "quiet"))
    return parts


def _verdict(budget: LaneBudget) -> Sentence:
    cards = ", ".join(f"{c.count} × {c.what} at x{c.lanes_each}" for c in budget.cards)
    if budget.fits:
        return Sentence(
            f"Yes: {_cpus(budget)} can feed {cards}; {budget.left} lanes are left.", "good"
        )
    return Sentence(
        f"No: {cards} want {budget.wanted} lanes, {budget.there} are on {_cpus(budget)}: "
        f"{-budget.left} are missing.",
        "bad",
    )


def _of_all(budgets: Sequence[LaneBudget]) -> list[Part]:
    wanted = " + ".join(f"{c.count} × x{c.lanes_each}" for c in budgets[0].cards)
    rows: list[list[str | Text]] = [
        [
            budget.cpu.id,
            f"{budget.cpu.pcie_generation}.0",
            str(budget.there),
            str(budget.wanted),
            Text("yes", "good") if budget.fits else Text(f"{-budget.left} missing", "bad"),
            str(budget.slot),
            f"x{budget.gpu_lanes_left}" if budget.gpu_lanes_left else "none",
        ]
        for budget in budgets
    ]
    columns = (
        "CPU",
        Column("PCIe", 1),
        "lanes",
        Column("wanted", 2),
        "enough",
        Column("a GPU's slot", 3),
        "widest for all GPUs",
    )
    sockets = budgets[0].sockets
    machine = "one CPU" if sockets == 1 else f"{sockets} CPUs"
    return [Table(f"Which {machine} can feed {wanted}", columns, rows)]


def _cpus(budget: LaneBudget) -> str:
    name = budget.cpu.name
    return f"one {name}" if budget.sockets == 1 else f"{budget.sockets} × {name}"


def _document(budget: LaneBudget) -> dict[str, Any]:
    return {
        "cpu": budget.cpu.id,
        "sockets": budget.sockets,
        "gpu": budget.gpu.id,
        "pcie_generation": budget.cpu.pcie_generation,
        "lanes": budget.there,
        "wanted": budget.wanted,
        "left": budget.left,
        "fits": budget.fits,
        "gpu_slot": str(budget.slot),
        "gpu_lanes_left": budget.gpu_lanes_left,
        "cards": [
            {"what": c.what, "count": c.count, "lanes_each": c.lanes_each, "lanes": c.lanes}
            for c in budget.cards
        ],
        "remedies": list(budget.remedies()),
        "source": budget.cpu.source,
        "date": budget.cpu.date.isoformat(),
    }
