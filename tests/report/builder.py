"""Builds a small study for tests: two workloads, this machine, and two clusters."""

import datetime
from dataclasses import dataclass

from gpuyard.economics.rent_or_own import break_even
from gpuyard.predictor import Choke, Constant, Prediction, Remedy, Step
from gpuyard.report.answers.study.report import study_answer
from gpuyard.report.html import render_page
from gpuyard.specs.study import RentOrBuy
from gpuyard.study.cost import compare_over_horizon
from gpuyard.study.result import (
    Basis,
    ChokeFinding,
    CostResult,
    EpochTime,
    MeasuredPoint,
    PlatformCurve,
    StudyResult,
    StudyVerdict,
    WorkloadResult,
)

HERE = "this machine"
APOLLO = "4 × HPE Apollo 6500"
CLOUD = "16 × p3.2xlarge, 10 Gbit/s"
BATCH = 50
BATCHES = (10, 50, 200)
EPOCH_BATCHES = (10, 20, 30, 50, 70, 100, 150, 200, 300, 400, 500, 600)
SAMPLES = 20_000


@dataclass(frozen=True)
class Platform:
    """A platform whose step takes t(b) = t0 + b/r, plus a ring all-reduce."""

    name: str
    fixed_seconds: float
    samples_per_second: float
    bytes_per_second: float
    gpus: tuple[int, ...]
    gpus_per_node: int

    def step(self, gpus: int, batch: int, gradient_bytes: float) -> Step:
        compute = self.fixed_seconds + batch / self.samples_per_second
        ring = 2 * (gpus - 1) / gpus * gradient_bytes / self.bytes_per_second
        exposed = max(0.15 * ring, ring - 0.4 * compute)
        return Step(compute, exposed, 0.02 * compute, 0.015 * compute * (gpus > 1))

    def prediction(self, gpus: int, batch: int, gradient_bytes: float) -> Prediction:
        step = self.step(gpus, batch, gradient_bytes)
        alone = self.step(1, batch, gradient_bytes)
        rate = gpus * batch / step.seconds
        choke: Choke = (
            "network" if step.exposed_communication_seconds > step.compute_seconds / 3 else "gpu"
        )
        per_node = min(gpus, self.gpus_per_node)
        return Prediction(
            gpus=gpus,
            nodes=-(-gpus // self.gpus_per_node),
            gpus_per_node=per_node,
            batch_per_gpu=batch,
            strategy="ddp",
            samples_per_second=rate,
            low=rate / 1.2,
            high=rate * 1.2,
            scaling_efficiency=alone.seconds / step.seconds,
            step=step,
            choke=choke,
            epoch_seconds=None,
            training_seconds=None,
            memory_bytes=3 * gradient_bytes + batch * 2e6,
            fits=None if self.name == HERE else True,
        )


def create_platforms(speed: float) -> tuple[Platform, Platform, Platform]:
    """Create this machine, a big cluster, and one of small machines. A light model has a high `speed`."""
    return (
        Platform(HERE, 0.004 / speed, 900 * speed, 1.1e9, (1, 2, 4, 8), 8),
        Platform(APOLLO, 0.0015 / speed, 9500 * speed, 11e9, (1, 2, 4, 8, 16, 32), 8),
        Platform(CLOUD, 0.0015 / speed, 8700 * speed, 1.1e9, (1, 2, 4, 8, 16), 1),
    )


CONSTANTS = (
    Constant("link_here", 1.1e9, "bytes/s", "measured", "6 bare all-reduces here"),
    Constant("overlap", 0.7, "of what could hide", "elsewhere", "two cores"),
    Constant("ddp_bucket", 26_214_400, "bytes", "published", "torch DDP: bucket_cap_mb=25"),
    Constant("infiniband-edr", 12.5e9, "bytes/s", "catalog", "InfiniBand EDR, 4 lanes"),
)


def measured_points(platform: Platform, gradient_bytes: float) -> tuple[MeasuredPoint, ...]:
    points = []
    for batch in BATCHES:
        alone = platform.step(1, batch, gradient_bytes).seconds
        for workers in (1, 2, 4):
            step = platform.step(workers, batch, gradient_bytes)
            slower = 1 + 0.03 * (workers - 1)
            rate = workers * batch / (step.seconds * slower)
            points.append(
                MeasuredPoint(
                    measurement_id=f"m-{batch:03}-{workers}",
                    workers=workers,
                    batch_per_worker=batch,
                    strategy="ddp",
                    samples_per_second=rate,
                    low=rate * 0.95,
                    high=rate * 1.05,
                    scaling_efficiency=alone / (step.seconds * slower),
                    compute_seconds=step.compute_seconds * slower,
                    exposed_communication_seconds=step.exposed_communication_seconds * slower,
                    input_seconds=step.input_seconds * slower,
                )
            )
    return tuple(points)


def finding(platform: Platform, basis: Basis, gpus: int, gradient_bytes: float) -> ChokeFinding:
    p = platform.prediction(gpus, BATCH, gradient_bytes)
    rate = p.samples_per_second
    return ChokeFinding(
        platform=platform.name,
        basis=basis,
        choke=p.choke,
        gpus=gpus,
        scaling_efficiency=p.scaling_efficiency,
        sentence=f"On {platform.name}, {gpus} GPUs do the work of {gpus * p.scaling_efficiency:.1f}.",
        remedies=(
            Remedy("per-GPU batch of 200 instead of 50", rate * 2.4, 2.4),
            Remedy("PowerSGD of rank 2 (lossy, about 122 × fewer bytes)", rate * 1.6, 1.6),
            Remedy("accumulate gradients over 4 steps", rate * 3.1, 3.1),
        ),
    )


def workload(
    name: str, choke: Choke = "network", *, speed: float = 1.0, gradient_bytes: float = 46e6
) -> WorkloadResult:
    """Create a workload that was measured here, and predicted here and on two clusters."""
    here, apollo, cloud = create_platforms(speed)
    measured = measured_points(here, gradient_bytes)
    headline = "GPU CHOKE: add GPUs" if choke == "gpu" else f"{choke.upper()} CHOKE: don't add GPUs"
    findings = (
        finding(here, "measured", 4, gradient_bytes),
        finding(apollo, "predicted", 32, gradient_bytes),
        finding(cloud, "predicted", 16, gradient_bytes),
    )
    curves = tuple(
        PlatformCurve(
            platform.name,
            "measured here: 3 runs with 1 worker" if platform is here else "scaled: from a V100",
            platform is here,
            tuple(platform.prediction(gpus, BATCH, gradient_bytes) for gpus in platform.gpus),
            CONSTANTS,
        )
        for platform in (here, apollo, cloud)
    )
    epochs = [
        EpochTime(HERE, p.workers, p.batch_per_worker, SAMPLES / p.samples_per_second, "measured")
        for p in measured
    ]
    fits: tuple[tuple[Platform, int, Basis], ...] = (
        (here, 1, "fitted"),
        (here, 2, "predicted"),
        (here, 4, "predicted"),
        (apollo, 32, "predicted"),
        (cloud, 16, "predicted"),
    )
    for platform, gpus, basis in fits:
        for batch in EPOCH_BATCHES:
            rate = platform.prediction(gpus, batch, gradient_bytes).samples_per_second
            epochs.append(EpochTime(platform.name, gpus, batch, SAMPLES / rate, basis))
    return WorkloadResult(
        name=name,
        model="gpuyard.workloads.spoken_digits:linear",
        parameters=int(gradient_bytes / 4),
        gradient_bytes=gradient_bytes,
        forward_flops=23e6,
        precision="fp32",
        samples_per_epoch=SAMPLES,
        samples_note="from the workload",
        data_source="synthetic samples of the dataset's shape",
        verdict=StudyVerdict(
            choke,
            headline,
            f"{findings[0].sentence} Of a step of 92 ms, 60 ms is waiting for 46 MB of gradients.",
            findings,
        ),
        measured=measured,
        curves=curves,
        epoch_times=tuple(epochs),
    )


def cost(speed_lead: float = 0.3) -> CostResult:
    plain = break_even(1.5, 8000, 2000)
    discounted = break_even(1.5, 8000, 2000, speed_lead)
    return CostResult(
        rent_usd_per_hour=1.5,
        buy_usd=8000,
        speed_lead=speed_lead,
        comparable_buy_usd=discounted.comparable_buy_usd,
        hours_per_year=2000,
        break_even_hours=discounted.break_even_hours,
        break_even_years=discounted.break_even_years,
        undiscounted_break_even_hours=plain.break_even_hours,
        undiscounted_break_even_years=plain.break_even_years,
        horizon=compare_over_horizon(
            RentOrBuy(
                rent="$1.50/h",
                buy="$8000",
                speed_lead=speed_lead,
                power="1.2 kW",
                electricity="$0.13/kWh",
                value_kept_per_year=0.5,
                date=datetime.date(2026, 8, 22),
            )
        ),
    )


def study(
    *workloads: WorkloadResult, name: str = "Should we add GPUs?", price: CostResult | None = None
) -> StudyResult:
    return StudyResult(
        name=name,
        created_at="2026-11-15T22:10:00+00:00",
        gpuyard_version="0.1.0",
        host="AMD EPYC 7R13, 16 cores, 64 GB, no GPU",
        workloads=workloads,
        cost=price,
        notes=("spoken-digits-linear was measured on synthetic samples of the dataset's shape.",),
    )


def full_study() -> StudyResult:
    """Create the study that most tests render."""
    return study(
        workload("spoken-digits-linear"),
        workload("spoken-digits-conv", "gpu", speed=0.1, gradient_bytes=2.4e6),
        price=cost(),
    )


def render_study(result: StudyResult) -> str:
    """Render the page of a study."""
    return render_page(study_answer(result))
