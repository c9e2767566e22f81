"""One workload on several clusters: their predictions side by side."""

from collections.abc import Sequence

from gpuyard import units
from gpuyard.predict import ClusterPrediction, Prediction
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table, Text, Words
from gpuyard.report.answers.predict import choke_if_it_fits


def clusters_answer(
    answers: Sequence[tuple[ClusterPrediction, Answer]], how: Sequence[str], *, whole: bool = False
) -> Answer:
    """One workload on several clusters side by side; `whole` shows each cluster's own answer, too."""
    results = [result for result, _ in answers]
    batches = sorted({p.batch_per_gpu for result in results for p in result.predictions})
    parts: list[Part] = [_side_by_side(results, batch, how) for batch in batches]
    for result, answer in answers:
        parts += answer.parts if whole else [_own_speed(result)]
    if not whole:
        parts += _said_of_all(answers)
    return Answer(
        parts,
        {
            "workload": results[0].workload,
            "precision": _one_precision(results),
            "clusters": [answer.document for _, answer in answers],
        },
        title=f"{results[0].workload} on {len(results)} clusters ({_precisions(results)})",
        verb="predict",
    )


def _said_of_all(answers: Sequence[tuple[ClusterPrediction, Answer]]) -> list[Part]:
    """What single answers say of the workload, and warn of, each once."""
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
        if isinstance(part, Sentence) and part.tone == "caution"
    )
    return [*map(Sentence, dict.fromkeys(notes)), *dict.fromkeys(warnings)]


def _one_precision(results: Sequence[ClusterPrediction]) -> str | None:
    """Of all of them, if it is the same."""
    found = {result.precision for result in results}
    return found.pop() if len(found) == 1 else None


def _precisions(results: Sequence[ClusterPrediction]) -> str:
    """ "tf32", or "fp32 or tf32": GPUs without tf32 compute in fp32."""
    return " or ".join(sorted({result.precision for result in results}))


def _own_speed(result: ClusterPrediction) -> Sentence:
    precision = result.precision_note.removesuffix(".").replace("Precision", "precision", 1)
    return Sentence(
        f"{result.cluster}: {precision}; single-GPU speed: {result.single_gpu_speed}.", "quiet"
    )


def _side_by_side(results: Sequence[ClusterPrediction], batch: int, how: Sequence[str]) -> Table:
    """A row a cluster, a column a number of GPUs; the fastest with as many GPUs stands out."""
    found = [
        {p.gpus: p for p in result.predictions if p.batch_per_gpu == batch} for result in results
    ]
    counts = sorted({gpus for of in found for gpus in of})
    largest_of_each = {max(of) for of in found}  # without these a row would have no speed
    mixed = _one_precision(results) is None
    fastest = {
        gpus: max(of[gpus].samples_per_second for of in found if gpus in of) for gpus in counts
    }
    rows: list[list[Words]] = []
    for result, of in zip(results, found, strict=True):
        own = [of.get(gpus) for gpus in counts]
        largest = of[max(of)]
        rows.append(
            [
                result.cluster,
                *([result.precision] if mixed else []),
                *("" if p is None else _rate(p, fastest[p.gpus]) for p in own),
                units.format_interval(largest.low, largest.high),
                units.format_share(largest.scaling_efficiency),
                choke_if_it_fits(largest),
            ]
        )
    return Table(
        f"{results[0].workload}, samples/s at a batch of {batch} per GPU "
        f"({', '.join([_precisions(results), *how])})",
        (
            "cluster",
            *([Column("precision", 1)] if mixed else []),
            *(
                Column(f"{gpus} GPU{'' if gpus == 1 else 's'}", 0 if gpus in largest_of_each else n)
                for n, gpus in zip(range(len(counts), 0, -1), counts, strict=True)
            ),
            Column("90 % interval", 1),
            "efficiency",
            "choke",
        ),
        rows,
        note="Interval, efficiency and choke are those with the most GPUs of each cluster.",
    )


def _rate(p: Prediction, fastest: float) -> Words:
    text = units.format_per_second(p.samples_per_second)
    if p.fits is False:
        return Text(text, "bad")
    return Text(text, "strong") if p.samples_per_second == fastest else text
