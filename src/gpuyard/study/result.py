"""The result of a study: the document behind report.html, written as study.json."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from gpuyard.economics.sensitivity import TornadoBar
from gpuyard.planner import PlanResult
from gpuyard.predictor import Choke, Constant, Prediction, Remedy
from gpuyard.predictor.knee import Knee
from gpuyard.specs.exchange import RecordedStrategy

Basis = Literal["measured", "fitted", "predicted"]


@dataclass(frozen=True)
class ChokeFinding:
    """The bottleneck of one workload on one platform, at the largest number of GPUs that fits."""

    platform: str
    basis: Basis
    choke: Choke
    gpus: int
    scaling_efficiency: float
    sentence: str
    remedies: tuple[Remedy, ...]
    knee: Knee | None = None  # None: one GPU was tried
    fits: bool = True  # False: it does not fit into memory with any number of GPUs that was tried
    doubt: str | None = None  # why its measurements are doubtful

    @property
    def past_knee(self) -> bool:
        return self.knee is not None and self.knee.is_past(self.gpus)

    @property
    def is_conclusive(self) -> bool:
        """True if it is evidence for or against adding GPUs."""
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
    strategy: RecordedStrategy
    samples_per_second: float
    low: float
    high: float
    scaling_efficiency: float | None  # None: one worker at this batch was not measured
    compute_seconds: float
    exposed_communication_seconds: float
    input_seconds: float
    doubt: str | None = None  # why it is doubtful


@dataclass(frozen=True)
class PlatformCurve:
    """Predictions for one platform."""

    platform: str
    basis: str  # the source of the compute time
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
    """The result for one workload."""

    name: str
    model: str
    parameters: int
    gradient_bytes: float
    forward_flops: float
    precision: str
    samples_per_epoch: int
    samples_note: str  # where the number of samples comes from
    data_source: str  # the data of the measured runs
    verdict: StudyVerdict
    measured: tuple[MeasuredPoint, ...]
    curves: tuple[PlatformCurve, ...]
    epoch_times: tuple[EpochTime, ...]
    batch_per_gpu: int | None = None  # the workload's own
    # a sentence if the intervals of the two fastest clusters overlap, with the run that would decide
    open_choice: str | None = None


@dataclass(frozen=True)
class HorizonResult:
    """The payments of renting and owning by month, and how much each input matters."""

    price_date: str  # ISO 8601
    saving_usd: float  # of owning, in today's money
    rented_cash_by_month: tuple[float, ...]
    owned_cash_by_month: tuple[float, ...]  # for as much work as is rented
    break_even_months: float | None  # None: never
    swing: float  # share by which each input was changed
    tornado: tuple[TornadoBar, ...]
    electricity: str = ""  # the source of its price


@dataclass(frozen=True)
class CostResult:
    """The comparison of renting and buying."""

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
    notes: tuple[str, ...]  # caveats, such as synthetic data or runs that were not measured
    plan: PlanResult | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def parse_study_result(text: str) -> StudyResult:
    """Parse a study.json; raise pydantic's ValidationError if it is not one."""
    from pydantic import TypeAdapter

    return TypeAdapter(StudyResult).validate_json(text)
