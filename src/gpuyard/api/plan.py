"""Find the machines to rent or buy for a goal: from a plan file, or from a budget and a team."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from gpuyard import units
from gpuyard.api.inputs import load_calibration, load_results, parse_precisions, read_workload
from gpuyard.api.plotting import Line, Plot
from gpuyard.api.result import Result
from gpuyard.api.starter_templates import IMAGE_MODELS, IMAGENET_BYTES_PER_SAMPLE
from gpuyard.catalog.specfiles import read_plan, read_site
from gpuyard.errors import UserMistake
from gpuyard.planner import Choice, PlanResult, make_plan
from gpuyard.report.answers.plan import plan_answer
from gpuyard.specs.plan import People, Plan
from gpuyard.specs.plan_costs import PlanSite
from gpuyard.specs.spec_errors import explain_value
from gpuyard.specs.workload import Dataset
from gpuyard.workloads.profiles import find_shape

if TYPE_CHECKING:
    from gpuyard.specs import Workload
    from gpuyard.specs.site import Site

RUNS_PER_RESEARCHER = 4.0
"""Runs that each researcher starts per month if the plan gives no number: one per week."""
_IMAGENET = Dataset(samples=1_281_167, bytes_per_sample=IMAGENET_BYTES_PER_SAMPLE)
_IMAGENET_EPOCHS = 90  # Goyal et al., 2017


class PlanAnswer(Result[Choice]):
    """The choice of a plan. The rows are the best options, the fastest first."""

    def __init__(
        self,
        result: PlanResult,
        *,
        assumed: Sequence[str] = (),
        why: bool = False,
        chart: bool = False,
    ) -> None:
        answer = plan_answer(result, with_chart=chart, why=why, assumed=assumed)
        super().__init__(
            answer,
            result.front,
            plot=self._create_plot,
            explain=lambda: PlanAnswer(result, assumed=assumed, why=True),
        )
        self.result = result

    def deployment(self) -> str:
        """Return the choice as the text of a *.deployment.yaml."""
        from gpuyard.deploy.from_plan import render_deployment

        return render_deployment(self.result)

    def _create_plot(self) -> Plot:
        hours = [choice.run_seconds / 3600 for choice in self.rows]
        line = Line("best options", hours, [choice.usd_per_run for choice in self.rows])
        return Plot(self.result.name, "hours per run", "dollars per run", [line])


def plan(
    file: str | Path | Plan | None = None,
    *,
    budget: str | float | None = None,
    researchers: int | None = None,
    model: "str | Path | Workload | None" = None,
    runs_per_month: float | None = None,
    time_per_run: str | float | None = None,
    samples: int | None = None,
    epochs: int | None = None,
    tokens: str | float | None = None,
    horizon: str | float | None = None,
    tariff: str | float | None = None,
    site: "str | Path | Site | None" = None,
    usage: str | Path | None = None,
    project: str | None = None,
    precision: str | None = None,
    power_cap: str | float | None = None,
    calibration: str | None = None,
    results: str | None = None,
    why: bool = False,
    chart: bool = False,
) -> PlanAnswer:
    """Search offers, GPUs, nodes, networks, batches, and remedies for a plan file or a `Plan`.

    Without a file, `budget` and `model` describe the goal; the answer lists the assumptions about the rest. The other
    parameters are the options of `gpuyard plan`.
    """
    goal = {
        "--budget": budget, "--researchers": researchers, "--model": model, "--runs-per-month": runs_per_month,
        "--time-per-run": time_per_run, "--samples": samples, "--epochs": epochs, "--tokens": tokens,
        "--horizon": horizon, "--tariff": tariff,
    }  # fmt: skip
    given = [option for option, value in goal.items() if value is not None]
    assumed: list[str] = []
    directory = Path()
    if isinstance(file, str | Path):
        spec, directory = read_plan(Path(file)), Path(file).parent
    elif file is not None:
        spec = file
    else:
        spec, assumed = create_plan(
            model, budget, researchers=researchers, runs_per_month=runs_per_month,
            time_per_run=time_per_run, samples=samples, epochs=epochs, tokens=tokens,
            horizon=horizon, tariff=tariff,
        )  # fmt: skip
    if file is not None and given:
        raise UserMistake(f"a plan file has its own goal; leave out {' and '.join(given)}")
    if precision is not None:
        search = spec.search.model_copy(update={"precision": parse_precisions(precision)})
        spec = spec.model_copy(update={"search": search})
    if power_cap is not None:
        watts = units.parse_watts(power_cap) if isinstance(power_cap, str) else float(power_cap)
        search = spec.search.model_copy(update={"power_cap": watts})
        spec = spec.model_copy(update={"search": search})
    if project is not None and usage is None:
        raise UserMistake("--project needs --usage")
    if usage is not None:
        spec = spec.model_copy(update={"runs_per_month": _count_runs(Path(usage), project)})
    site_spec = read_site(Path(site)) if isinstance(site, str | Path) else site
    stored = load_results(results)
    result = make_plan(
        spec,
        directory,
        load_calibration(calibration),
        site_spec,
        figures=stored.add_figures if stored else None,
    )
    return PlanAnswer(result, assumed=assumed, why=why, chart=chart)


def create_plan(
    model: "str | Path | Workload | None",
    budget: str | float | None,
    *,
    researchers: int | None = None,
    runs_per_month: float | None = None,
    time_per_run: str | float | None = None,
    samples: int | None = None,
    epochs: int | None = None,
    tokens: str | float | None = None,
    horizon: str | float | None = None,
    tariff: str | float | None = None,
) -> tuple[Plan, list[str]]:
    """Create a plan from a budget and a team, and list what it assumes."""
    if budget is None or model is None:
        raise UserMistake(
            "name a plan file, or describe the goal: gpuyard plan --budget '$60000' --researchers 6 --model resnet50; "
            "gpuyard init plan writes a file"
        )
    people = researchers or 1
    workload, assumed = _complete_workload(read_workload(model), samples, epochs, tokens)
    if runs_per_month is None:
        runs_per_month = RUNS_PER_RESEARCHER * people
        assumed.append(
            f"{runs_per_month:g} runs per month, one per researcher and week (--runs-per-month)"
        )
    optional: dict[str, Any] = {}
    if horizon is not None:
        optional["horizon"] = horizon if isinstance(horizon, str) else f"{horizon:g} years"
    if tariff is not None:
        price = tariff if isinstance(tariff, str) else f"${tariff}/kWh"
        units.parse_usd_per_kwh(price)  # explains a mistake
        optional["site"] = PlanSite(electricity=price)
    try:
        spec = Plan(
            name=f"{workload.name} for {units.format_count(people, 'researcher')}",
            workload=workload,
            runs_per_month=runs_per_month,
            budget=units.parse_usd(budget),
            time_per_run=None if time_per_run is None else units.parse_seconds(time_per_run),
            people=People(researchers=people),
            **optional,
        )
    except ValidationError as invalid:
        mistake = invalid.errors()[0]
        option = f"--{str(mistake['loc'][-1]).replace('_', '-')}"
        raise UserMistake(f"{option}: {explain_value(mistake)}") from None
    return spec, assumed


def _complete_workload(
    workload: "Workload",
    samples: int | None,
    epochs: int | None,
    tokens: str | float | None = None,
) -> "tuple[Workload, list[str]]":
    """Add a dataset and epochs to a workload that has none; ImageNet is assumed for image models."""
    assumed = []
    updates: dict[str, object] = {}
    if tokens is not None:
        updates["tokens"] = units.parse_tokens(tokens)
    images = str(workload.model).startswith(IMAGE_MODELS)
    if samples is not None:
        updates["dataset"] = replace_samples(workload.dataset, samples)
    elif workload.dataset is None and workload.tokens is None and tokens is None:
        if not images:
            if find_shape(workload) is not None:
                raise UserMistake(
                    f"the length of a run of {workload.name} is unknown: add its tokens, e.g. --tokens 20B"
                )
            raise UserMistake(
                f"the length of a run of {workload.name} is unknown: add --samples and --epochs, e.g. "
                "--samples 1000000 --epochs 3"
            )
        updates["dataset"] = _IMAGENET
        assumed.append("ImageNet's 1,281,167 images (--samples)")
    if epochs is not None:
        updates["epochs"] = epochs
    elif workload.dataset is None and images:
        updates["epochs"] = _IMAGENET_EPOCHS
        assumed.append(f"{_IMAGENET_EPOCHS} epochs per run (--epochs)")
    return workload.model_copy(update=updates), assumed


def replace_samples(dataset: Dataset | None, samples: int) -> Dataset:
    """Return the dataset with another number of samples."""
    if dataset is None:
        return Dataset(samples=samples)
    return dataset.model_copy(update={"samples": samples})


def _count_runs(usage: Path, project: str | None) -> float:
    from gpuyard.economics.usage import read_usage, runs_per_month
    from gpuyard.files import read_text

    leases = read_usage(read_text(usage), str(usage))
    return runs_per_month(leases, str(usage), project)
