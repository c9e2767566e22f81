"""The answer to `gpuyard predict` with several clusters: their predictions side by side."""

from collections.abc import Sequence

from gpuyard import units
from gpuyard.predictor import ClusterPrediction, Prediction
from gpuyard.report.answer import Answer, Column, Part, Sentence, StyledText, Table, Text
from gpuyard.report.answers.predict import choke_if_it_fits


def clusters_answer(
    answers: Sequence[tuple[ClusterPrediction, Answer]], how: Sequence[str], *, whole: bool = False
) -> Answer:
    """Build the answer for several clusters; `whole` also includes each cluster's own answer."""
    results = [result for result, _ in answers]
    batches = sorted({p.batch_per_gpu for result in results for p in result.predictions})
    parts: list[Part] = [_build_headline(results)]
    parts += [_build_table(results, batch, how) for batch in batches]
    for result, answer in answers:
        parts += answer.parts if whole else [_describe_speed(result)]
    if not whole:
        parts += _collect_notes(answers)
    return Answer(
        parts,
        {
            "workload": results[0].workload,
            "precision": _find_common_precision(results),
            "clusters": [answer.document for _, answer in answers],
        },
        title=f"{results[0].workload} on {len(results)} clusters ({_list_precisions(results)})",
        verb="predict",
        rows=[
            {"cluster": result.cluster, **row}
            for result, answer in answers
            for row in answer.list_rows()
        ],
    )


def _build_headline(results: Sequence[ClusterPrediction]) -> Sentence:
    """Name the fastest configuration that fits into memory."""
    fitting = [(p, r) for r in results for p in r.predictions if p.fits is not False]
    if not fitting:
        return Sentence("Out of memory. Nothing here fits.", "bad")
    fastest, result = max(fitting, key=lambda pair: pair[0].samples_per_second)
    speed = units.format_number(float(f"{fastest.samples_per_second:.3g}"))
    gpus = units.format_count(fastest.gpus, "GPU")
    return Sentence(f"Fastest: {result.cluster}, {gpus}: {speed} samples/s.", "strong")


def _collect_notes(answers: Sequence[tuple[ClusterPrediction, Answer]]) -> list[Part]:
    """Collect the notes and warnings of all answers, each once."""
    notes = (
        note
        for result, _ in answers
        for note in (result.framework_note, result.gradient_note, result.peer_note)
        if note
    )
    warnings = (
        part
        for _, answer in answers
        for part in answer.parts
        if isinstance(part, Sentence) and part.tone in ("caution", "bad")
    )
    return [*map(Sentence, dict.fromkeys(notes)), *dict.fromkeys(warnings)]


def _find_common_precision(results: Sequence[ClusterPrediction]) -> str | None:
    precisions = {result.precision for result in results}
    return precisions.pop() if len(precisions) == 1 else None


def _list_precisions(results: Sequence[ClusterPrediction]) -> str:
    """Return e.g. "fp32 or tf32": GPUs without tf32 compute in fp32."""
    return " or ".join(sorted({result.precision for result in results}))


def _describe_speed(result: ClusterPrediction) -> Sentence:
    precision = result.precision_note.removesuffix(".").replace("Precision", "precision", 1)
    return Sentence(
        f"{result.cluster}: {precision}; single-GPU speed: {result.single_gpu_speed}.", "quiet"
    )


def _build_table(results: Sequence[ClusterPrediction], batch: int, how: Sequence[str]) -> Table:
    """Build a table with a row per cluster and a column per number of GPUs; the fastest stands out."""
    by_cluster = [
        {p.gpus: p for p in result.predictions if p.batch_per_gpu == batch} for result in results
    ]
    counts = sorted({gpus for predictions in by_cluster for gpus in predictions})
    largest_counts = {max(predictions) for predictions in by_cluster}  # every row needs a speed
    mixed = _find_common_precision(results) is None
    fastest = {
        gpus: max(p[gpus].samples_per_second for p in by_cluster if gpus in p) for gpus in counts
    }
    rows: list[list[StyledText]] = []
    for result, predictions in zip(results, by_cluster, strict=True):
        largest = predictions[max(predictions)]
        rates = [
            _format_rate(predictions[gpus], fastest[gpus]) if gpus in predictions else ""
            for gpus in counts
        ]
        rows.append(
            [
                result.cluster,
                *([result.precision] if mixed else []),
                *rates,
                units.format_interval(largest.low, largest.high),
                units.format_share(largest.scaling_efficiency),
                choke_if_it_fits(largest),
            ]
        )
    return Table(
        f"{results[0].workload}, samples/s at a batch of {batch} per GPU "
        f"({', '.join([_list_precisions(results), *how])})",
        (
            "cluster",
            *([Column("precision", 1)] if mixed else []),
            *(
                Column(f"{gpus} GPU{'' if gpus == 1 else 's'}", 0 if gpus in largest_counts else n)
                for n, gpus in zip(range(len(counts), 0, -1), counts, strict=True)
            ),
            Column("90% interval", 1),
            "efficiency",
            "choke",
        ),
        rows,
        note="Interval, efficiency, and choke are those with the most GPUs of each cluster.",
    )


def _format_rate(p: Prediction, fastest: float) -> StyledText:
    text = units.format_per_second(p.samples_per_second)
    if p.fits is False:
        return Text(text, "bad")
    return Text(text, "strong") if p.samples_per_second == fastest else text
