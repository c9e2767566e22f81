"""The complete result of `gpuyard validate`, as a value and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gpuyard.catalog.published import (
    HELD_OUT_TABLES,
    LAB_TABLE,
    SIZING_TABLES,
    TRAINING_TABLES,
    published_sources,
    skipped_collectives,
)
from gpuyard.predictor.constants import load_tuning
from gpuyard.predictor.validation.collectives import (
    ThreadScore,
    score_all_reduces,
    score_links,
    score_threads,
    skipped_all_reduces,
)
from gpuyard.predictor.validation.points import PointsScore, score_points
from gpuyard.predictor.validation.score import (
    Score,
    SourceScore,
    TableScore,
    Validation,
    score_table,
    validate,
)
from gpuyard.predictor.validation.single import score_single_gpu

METHOD = (
    "Every row is predicted from the single-GPU figure of its series, or from the smallest published system. The "
    "constants were fitted without its table. Its interval was sized without its source (one publisher's machines "
    "under one software stack). 'no overlap' is p·Tcomp/(Tcomm+Tcomp) with gpuyard's Tcomm. The speed of one GPU "
    "is predicted without the figures of its publisher."
)


@dataclass(frozen=True)
class Report:
    """Scores of the training tables, single GPUs, bare all-reduces, and gpuyard's own lab."""

    training: Validation
    single_gpu: dict[str, Score]
    all_reduces: dict[str, Score]
    lab: TableScore | None = None
    points: dict[str, list[PointsScore]] = field(default_factory=dict)
    judges: Validation | None = None  # tables that are not part of any fit
    judge_points: dict[str, list[PointsScore]] = field(default_factory=dict)
    method: str = METHOD
    threads: tuple[ThreadScore, ...] = ()

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "method": self.method,
            "overall": asdict(self.training.overall),
            "tables": {name: _table(t) for name, t in self.training.tables.items()},
            "sizing_tables": {name: _table(t) for name, t in self.training.sizing_tables.items()},
            "sources": {name: _source(score) for name, score in self.training.sources.items()},
            "coverage": {
                "average": self.training.by_source.inside_interval,
                "median_interval_width": self.training.by_source.median_interval_width,
                "worst_source": self.training.worst_source.source,
                "worst": self.training.worst_source.score.inside_interval,
                "nested_average": self.training.nested_average,
                "nested": self.training.nested,
                "nested_worst": min(self.training.nested.values(), default=None),
            },
            "baselines": {
                "perfect_scaling": _plain(self.training.perfect_scaling),
                "no_overlap": _plain(self.training.no_overlap),
            },
        }
        if self.single_gpu:
            document["single_gpu"] = {n: _plain(s) for n, s in self.single_gpu.items()}
            document["all_reduce"] = {
                "source": published_sources()["allreduce"].source,
                "series": {name: _plain(score) for name, score in self.all_reduces.items()},
                "skipped": _skipped(skipped_all_reduces()),
            }
        if self.threads:
            document["collectives"] = {
                "source": published_sources()["collectives"].source,
                "links": [asdict(score) for score in score_links(self.threads)],
                "threads": [asdict(score) for score in self.threads],
                "skipped": _skipped(tuple(skipped_collectives().most_common())),
            }
        if self.points:
            document["points"] = {
                n: [asdict(s) for s in scores] for n, scores in self.points.items()
            }
        if self.judges is not None:
            document["judges"] = {
                "tables": {name: _table(t) for name, t in self.judges.tables.items()},
                "sources": {name: _source(score) for name, score in self.judges.sources.items()},
                "coverage": self.judges.by_source.inside_interval,
                "median_interval_width": self.judges.by_source.median_interval_width,
                "worst_source": self.judges.worst_source.source,
                "worst": self.judges.worst_source.score.inside_interval,
                "points": {
                    n: [asdict(s) for s in scores] for n, scores in self.judge_points.items()
                },
            }
        if self.lab is not None:
            document["lab"] = _table(self.lab)
        return document


def report(table: str | None = None, points: Sequence[int] = ()) -> Report:
    """Validate one table, or all tables together with single GPUs, all-reduces, and the lab.

    With `points`, the report also scores predictions that use these numbers of multi-GPU figures, by source.
    """
    if table is not None:
        training = validate((table,))
        return Report(training, {}, {}, points=score_points(points, (table,)) if points else {})
    lab = score_table(LAB_TABLE, load_tuning())
    return Report(
        validate(TRAINING_TABLES, SIZING_TABLES),
        score_single_gpu(),
        score_all_reduces(),
        lab,
        score_points(points) if points else {},
        judges=validate(HELD_OUT_TABLES),
        judge_points=score_points(points, HELD_OUT_TABLES) if points else {},
        threads=score_threads(),
    )


def _table(scored: TableScore) -> dict[str, Any]:
    source = scored.source
    return {
        **asdict(scored.score),
        "constants": f"fitted without {source.table}"
        if source.table in TRAINING_TABLES
        else "the default ones; none is fitted to it",
        "anchors": scored.anchors,
        "baselines": {
            "perfect_scaling": _plain(scored.perfect_scaling),
            "no_overlap": _plain(scored.no_overlap),
        },
        "skipped": _skipped(scored.skipped),
        "title": source.title,
        "source": source.source,
        "date": source.date.isoformat(),
        "added": source.added,
        "unknown": source.unknown,
    }


def _source(scored: SourceScore) -> dict[str, Any]:
    return {
        **asdict(scored.score),
        "table": scored.table,
        "frameworks": list(scored.frameworks),
        "input_workers": list(scored.input_workers),
        "median_low": scored.median_low,
        "median_high": scored.median_high,
    }


def _plain(score: Score) -> dict[str, Any]:
    return {name: value for name, value in asdict(score).items() if value is not None}


def _skipped(reasons: tuple[tuple[str, int], ...]) -> list[dict[str, Any]]:
    return [{"reason": reason, "rows": rows} for reason, rows in reasons]
