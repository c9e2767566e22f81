"""Everything about one job for a page: its status, its outlook, and its speed against what was expected."""

from dataclasses import asdict, replace
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.base import load_engine
from gpuyard.jobs.job import Handle
from gpuyard.jobs.job_wait import get_status
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Chart,
    ChartOptions,
    Charts,
    Part,
    RendererOnly,
    Section,
    Sentence,
)
from gpuyard.report.answers.jobs.queue import explain_answer
from gpuyard.report.answers.jobs.status import status_answer
from gpuyard.report.figures.job_curves import (
    build_gpu_charts,
    build_job_loss_chart,
    build_job_speed_chart,
)

_MAX_SAMPLES = 2000  # in the document; the charts show all


def describe_job(text: str) -> Answer:
    """Return the answer of `gpuyard status`, with the outlook of an open job and the curves of its reports."""
    handle = Handle.parse(text)
    engine = load_engine(handle.engine)
    status = get_status(engine, handle)
    answer = status_answer(status)
    parts: list[Part] = list(answer.parts)
    document: dict[str, Any] = dict(answer.document)
    document["outlook"] = None
    if not status.final:
        try:
            outlook = explain_answer(status, engine.explain(handle))
        except GpuyardError as error:  # it may have ended meanwhile
            outlook = Answer([Sentence(str(error))])
        parts.append(Section("Outlook", outlook.parts))
        document["outlook"] = outlook.document or None
    windows = [window for window in engine.reports(handle) if not window.warmup]
    expected = engine.expected_speed(handle)
    document["expected_speed"] = None if expected is None else asdict(expected)
    samples = engine.gpu_samples(handle)
    document["gpu_samples"] = [asdict(sample) for sample in samples[-_MAX_SAMPLES:]]
    options: dict[str, ChartOptions] = {}
    if windows:
        options["speed"] = build_job_speed_chart(windows, expected)
        if any(window.loss is not None for window in windows):
            options["loss"] = build_job_loss_chart(windows)
    if samples:
        options |= build_gpu_charts(samples)
    charts = [Chart(f"chart-{name}", "", {ALL_BATCHES: chart}) for name, chart in options.items()]
    if charts:
        parts.append(RendererOnly("page", [Charts(charts)]))
    return replace(answer, parts=parts, document=document, title=str(handle))
