"""The prices and hours that the playbook's commands carry: the plan's own, or the catalog's for a stage."""

from dataclasses import dataclass

from gpuyard.catalog import prices
from gpuyard.catalog.parts import chassis, gpu_prices
from gpuyard.catalog.prices import shipped_prices
from gpuyard.planner.result import PlanResult
from gpuyard.planner.rulebook import StageFigures
from gpuyard.planner.servers import Server, servers_of
from gpuyard.specs.plan import Plan


@dataclass(frozen=True)
class Figures:
    """What renting one GPU and buying one machine cost, and how much one person trains."""

    rent_usd_per_gpu_hour: float
    machine_usd: float
    gpus_per_machine: int
    gpu_hours_per_person_month: float
    source: str

    def filled(self) -> dict[str, str]:
        """As a command line writes them."""
        return {
            "rent": f"'${self.rent_usd_per_gpu_hour:.2f}/h'",
            "buy": f"'${self.machine_usd:.0f}'",
            "gpus_per_machine": str(self.gpus_per_machine),
            "gpu_hours": f"{self.gpu_hours_per_person_month:.3g}",
        }


def stage_figures(asked: StageFigures) -> Figures:
    """A machine from parts and an instance of the catalog, as the stage names them."""
    box, _, build = asked.machine.partition("/")
    count, _, gpu = build.partition("x-")
    usd = int(count) * gpu_prices().get(gpu).usd + chassis().get(box).usd
    table = prices() if asked.instance in prices() else shipped_prices()
    rented = table.get(asked.instance)
    return Figures(
        rent_usd_per_gpu_hour=rented.usd_per_hour / rented.gpus,
        machine_usd=usd,
        gpus_per_machine=int(count),
        gpu_hours_per_person_month=asked.gpu_hours,
        source=f"{asked.machine} from parts (estimate), {asked.instance} of {rented.date}, "
        f"{asked.gpu_hours:g} GPU-hours a person and month assumed",
    )


def plan_figures(plan: Plan, result: PlanResult) -> Figures | None:
    """What the plan found to buy and to rent by the hour; None where it found only one of both."""
    servers = {server.id: server for server in servers_of(plan)}
    shown = [result.winner, *result.front, *(other.choice for other in result.alternatives)]
    choices = [choice for choice in shown if choice is not None]
    bought = next((choice for choice in choices if servers[choice.offer].buy_usd is not None), None)
    rented = [(c.usd_per_run, servers[c.offer]) for c in choices if c.way == "on-demand"]
    rented += [(c.rest.usd_per_run, servers[c.rest.offer]) for c in choices if c.rest is not None]
    hourly = [(usd, server) for usd, server in rented if server.rent_usd_per_hour is not None]
    if bought is None or not hourly:
        return None
    machine = servers[bought.offer]
    _, instance = min(hourly, key=lambda one: one[0])
    gpu_hours = plan.runs_per_month * bought.gpus * bought.run_seconds / 3600
    return Figures(
        rent_usd_per_gpu_hour=(instance.rent_usd_per_hour or 0.0) / instance.gpus,
        machine_usd=machine.buy_usd or 0.0,
        gpus_per_machine=machine.gpus,
        gpu_hours_per_person_month=gpu_hours / plan.people.researchers,
        source=f"the plan: {_dated(machine)}, {_dated(instance)}",
    )


def _dated(server: Server) -> str:
    return (
        f"{server.name} of {server.price_date}" if server.price_date else f"{server.name} as given"
    )
