"""What a study found: the document behind report.html, written as study.json."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from gpuyard.economics.sensitivity import TornadoBar
from gpuyard.planner import PlanResult
from gpuyard.predict import Choke, Constant, Prediction, Remedy
from gpuyard.predict.explain.knee import Knee
from gpuyard.specs import StrategyName

Basis = Literal["measured", "fitted", "predicted"]


@dataclass(frozen=True)
class ChokeFinding:
    """What one workload waits for on one platform, at the largest number of GPUs tried that fits."""

    platform: str
    basis: Basis
    choke: Choke
    gpus: int
    scaling_efficiency: float
    sentence: str
    remedies: tuple[Remedy, ...]
    knee: Knee | None = None  # None: one GPU was tried
    fits: bool = True  # False: into the memory of no number of GPUs tried
    doubt: str | None = None  # why what it stands on is not credible

    @property
    def past_knee(self) -> bool:
        return self.knee is not None and self.knee.is_past(self.gpus)

    @property
    def tells(self) -> bool:
        """Whether it says something about adding GPUs that a verdict can stand on."""
        return self.gpus > 1 and self.fits and self.doubt is None


@dataclass(frozen=True)
class StudyVerdict:
    """The answer for one workload."""

    choke: Choke
    headline: str  # "NETWORK CHOKE: don't add GPUs"
    sentence: str
    findings: tuple[ChokeFinding, ...]


@dataclass(frozen=True)
class MeasuredPoint:
    """One timed run on this machine."""

    measurement_id: str
    workers: int
    batch_per_worker: int
    strategy: StrategyName
    samples_per_second: float
    low: float
    high: float
    scaling_efficiency: float | None  # None: one worker at this batch was not measured
    compute_seconds: float
    exposed_communication_seconds: float
    input_seconds: float
    doubt: str | None = None  # why it is not credible


@dataclass(frozen=True)
class PlatformCurve:
    """Predictions for one platform."""

    platform: str
    basis: str  # what compute stands on
    here: bool  # this machine, predicted from its own one-worker runs
    predictions: tuple[Prediction, ...]
    constants: tuple[Constant, ...]


@dataclass(frozen=True)
class EpochTime:
    """Seconds for one pass over the dataset at one per-GPU batch size."""

    platform: str
    gpus: int
    batch_per_gpu: int
    seconds: float
    basis: Basis


@dataclass(frozen=True)
class WorkloadResult:
    """All about one workload."""

    name: str
    model: str
    parameters: int
    gradient_bytes: float
    forward_flops: float
    precision: str
    samples_per_epoch: int
    samples_note: str  # where the number of samples comes from
    data_source: str  # what the measured runs were fed with
    verdict: StudyVerdict
    measured: tuple[MeasuredPoint, ...]
    curves: tuple[PlatformCurve, ...]
    epoch_times: tuple[EpochTime, ...]
    batch_per_gpu: int | None = None  # the workload's own
    # that the two fastest clusters may be the other way round, and which run would tell; None: they can't
    open_choice: str | None = None


@dataclass(frozen=True)
class HorizonResult:
    """Renting and owning month by month, and which input decides."""

    price_date: str  # ISO 8601
    saving_usd: float  # of owning, in today's money
    rented_cash_by_month: tuple[float, ...]
    owned_cash_by_month: tuple[float, ...]  # for as much work as is rented
    break_even_months: float | None  # None: never
    swing: float  # by which each input was moved
    tornado: tuple[TornadoBar, ...]
    electricity: str = ""  # whose price counts, or that none does


@dataclass(frozen=True)
class CostResult:
    """Renting against buying."""

    rent_usd_per_hour: float
    buy_usd: float
    speed_lead: float
    comparable_buy_usd: float
    hours_per_year: float
    break_even_hours: float
    break_even_years: float
    undiscounted_break_even_hours: float
    undiscounted_break_even_years: float
    horizon: HorizonResult | None = None


@dataclass(frozen=True)
class StudyResult:
    """The whole study."""

    name: str
    created_at: str  # ISO 8601, UTC
    gpuyard_version: str
    host: str
    workloads: tuple[WorkloadResult, ...]
    cost: CostResult | None
    notes: tuple[str, ...]  # what a reader must know: synthetic data, what was not measured
    plan: PlanResult | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def study_result_from_json(text: str) -> StudyResult:
    """Read a study.json back. Raises pydantic's ValidationError where it is something else."""
    from pydantic import TypeAdapter

    return TypeAdapter(StudyResult).validate_json(text)
