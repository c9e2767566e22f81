"""Fit the constants of the large-model step to published runs, with each publisher's software as a random effect.

A source's rows share a factor that its software stack has and that predictions for others do not use. So a table of many
rows says much about differences between layouts, and about the common level no more than one publisher can.
"""

from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from gpuyard.catalog import gpus
from gpuyard.predictor.large.constants import LargeConstants
from gpuyard.predictor.large.published_table import Table
from gpuyard.predictor.large.rows import PublishedRow
from gpuyard.predictor.large.step import compute_step
from gpuyard.predictor.table import Booleans, Floats, Integers
from large_tables import find_publishers

PRIORS = {  # standard deviation of each constant's prior, in logarithms
    "gemm_share": 0.1, "wave_elements": 0.5, "attention_share": 0.15, "older_attention_share": 0.15,
    "memory_share": 0.08, "elementwise_passes": 0.3, "eager_passes": 0.4, "quantize_passes": 0.7,
    "pytorch_quantize_passes": 0.5, "cast_weight_bytes": 0.4, "permute_passes": 0.5, "score_passes": 0.4,
    "layer_seconds": 0.5, "tensor_seconds": 0.6, "eager_seconds": 0.4, "expert_seconds": 0.8,
    "ring_step_seconds": 0.3, "tensor_exposed": 0.3, "tensor_overlap": 0.3, "data_exposed": 0.4,
    "shard_exposed": 0.5, "shard_memory_share": 0.4, "expert_exposed": 0.4, "context_exposed": 0.5,
    "pipeline_exposed": 0.5, "pipeline_seconds": 0.7, "selective_share": 0.5,
    "pytorch_selective_share": 0.3, "full_share": 0.1, "optimizer_passes": 0.3, "expert_tokens": 0.6,
    "straggling": 0.5,
}  # fmt: skip
# what is known of shares of peaks: faster GPUs and narrower numbers reach less of theirs
EFFECT_CENTERS = {
    "Hopper/bf16": -0.08, "Blackwell/bf16": -0.15, "Blackwell Ultra/bf16": -0.15, "fp8": -0.3,
    "mxfp8": -0.3, "nvfp4": -0.5, "Hopper 500 W hbm2e": -0.12, "CDNA 3/bf16": -0.5, "CDNA 3/fp8": -0.5,
}  # fmt: skip
EFFECT_PRIOR, SOURCE_PRIOR, NOISE = 0.3, 0.12, 0.1
THINNED, THINNING = "vtrain", 8  # every eighth row of the largest table is enough
STEP = 1e-4  # of a derivative


@dataclass
class StepFit:
    """Fitted logarithms of constants over their start values, and effects."""

    constants: Floats
    effects: Floats


class StepFitter:
    """A table with what the fit needs of it: rows of effects, and the sources."""

    def __init__(self, table: Table, usable: Booleans) -> None:
        self.table = table
        self.rows = list(table.rows)
        self.usable = np.flatnonzero(usable)  # the rows that may be fitted
        self.keys = sorted({key for i in self.usable for key in table.effect_keys[i] if key})
        self.publishers = find_publishers(self.rows)
        self.sources = np.array([row.source for row in self.rows])
        self.measured = np.log(table.measured)
        self.on_matrices = self._incidence([row[:-1] for row in table.effect_keys])
        self.on_attention = self._incidence([row[-2:] for row in table.effect_keys])
        names = sorted(set(self.sources))
        self.of_source = (self.sources[:, None] == np.array(names)[None, :]).astype(float)
        start = LargeConstants()
        self.start = np.array([float(getattr(start, name)) for name in PRIORS])

    def _incidence(self, keys: list[tuple[str, ...]]) -> Floats:
        return np.array([[float(key in row) for key in self.keys] for row in keys])

    def constants(self, fit: StepFit) -> LargeConstants:
        values = self.start * np.exp(fit.constants)
        return replace(LargeConstants(), **dict(zip(PRIORS, map(float, values), strict=True)))

    def effects(self, fit: StepFit) -> dict[str, float]:
        return dict(zip(self.keys, map(float, fit.effects), strict=True))

    def predict(self, index: Integers, fit: StepFit) -> Floats:
        """Return the logarithm of tokens per second per GPU."""
        return _Part(self, index).predict(fit.constants, fit.effects)

    def fit(self, index: Integers) -> StepFit:
        """Return the constants and effects that explain these rows best."""
        thinned = index[self.sources[index] == THINNED][::THINNING]
        index = np.concatenate([index[self.sources[index] != THINNED], thinned])
        part, size = _Part(self, index), len(PRIORS)
        counts = Counter(self.publishers[index])
        weight = np.array([counts[name] ** -0.25 for name in self.publishers[index]])
        effects, sources = len(self.keys), self.of_source.shape[1]
        centers = np.array([EFFECT_CENTERS.get(key, 0.0) for key in self.keys])
        start = np.concatenate([np.zeros(size), centers, np.zeros(sources)])
        prior = np.array(
            [*PRIORS.values(), *([EFFECT_PRIOR] * effects), *([SOURCE_PRIOR] * sources)]
        )

        def residuals(vector: Floats) -> Floats:
            predicted = part.predict(vector[:size], vector[size : size + effects])
            predicted = predicted + self.of_source[index] @ vector[size + effects :]
            errors = weight * (predicted - self.measured[index]) / NOISE
            return np.concatenate([errors, (vector - start) / prior])

        def jacobian(vector: Floats) -> Floats:
            slopes = part.differentiate(vector[:size], vector[size : size + effects])
            slopes = np.hstack([slopes, self.of_source[index]])
            return np.vstack([weight[:, None] * slopes / NOISE, np.diag(1 / prior)])

        solution = least_squares(
            residuals, start, jac=jacobian, loss="soft_l1", f_scale=1.5, max_nfev=25
        )
        return StepFit(solution.x[:size], solution.x[size : size + effects])

    def leave_publishers_out(self) -> tuple[Floats, Booleans]:
        """Return the logarithm of measured over predicted, and whether others had that GPU, precision, and kind of model."""
        ratios, known = np.full(len(self.rows), np.nan), np.zeros(len(self.rows), dtype=bool)
        for name in sorted(set(self.publishers)):
            out = np.flatnonzero(self.publishers == name)
            others = self.usable[self.publishers[self.usable] != name]
            ratios[out] = self.measured[out] - self.predict(out, self.fit(others))
            seen = {self.table.effect_keys[i][1] for i in others}
            with_experts = find_expert_evidence([self.rows[i] for i in others])
            known[out] = [
                self.table.effect_keys[i][1] in seen
                and (not self.rows[i].shape.experts or architecture(self.rows[i]) in with_experts)
                for i in out
            ]
        return ratios, known


def find_expert_evidence(rows: list[PublishedRow]) -> list[str]:
    """Return the architectures on which models with experts were measured."""
    return sorted({architecture(row) for row in rows if row.shape.experts})


def architecture(row: PublishedRow) -> str:
    return gpus().get(row.gpu).architecture


class _Part:
    """Some rows of a table, with their columns taken once."""

    def __init__(self, fitter: StepFitter, index: Integers) -> None:
        table = fitter.table
        self.model, self.layout = _take(table.model, index), _take(table.layout, index)
        self.cluster, self.options = _take(table.cluster, index), _take(table.options, index)
        self.on_matrices, self.on_attention = fitter.on_matrices[index], fitter.on_attention[index]
        self.start = fitter.start
        tokens = self.layout.global_batch * self.model.sequence / self.layout.gpus
        self.tokens = np.log(tokens)

    def predict(self, constants: Floats, effects: Floats) -> Floats:
        values: dict[str, Any] = dict(zip(PRIORS, self.start * np.exp(constants), strict=True))
        values["gemm_share"] *= np.exp(self.on_matrices @ effects)
        attention = np.exp(self.on_attention @ effects)
        values["attention_share"] *= attention
        values["older_attention_share"] *= attention
        fitted = LargeConstants(**values)
        step = compute_step(self.model, self.layout, self.cluster, self.options, fitted)
        return np.asarray(self.tokens - np.log(step.total))

    def differentiate(self, constants: Floats, effects: Floats) -> Floats:
        """Return the derivatives by constants and effects; an effect's is that of the shares it multiplies."""
        base = self.predict(constants, effects)
        slopes = {}
        for position, name in enumerate(PRIORS):
            moved = constants.copy()
            moved[position] += STEP
            slopes[name] = (self.predict(moved, effects) - base) / STEP
        attention = slopes["attention_share"] + slopes["older_attention_share"]
        by_effect = self.on_matrices * slopes["gemm_share"][:, None]
        by_effect = by_effect + self.on_attention * attention[:, None]
        return np.hstack([np.column_stack(list(slopes.values())), by_effect])


def _take(columns: Any, index: Integers) -> Any:
    """Return the rows of an index of any of the column classes."""
    values = {f.name: getattr(columns, f.name) for f in fields(columns)}
    return replace(columns, **{n: v[index] if np.ndim(v) else v for n, v in values.items()})
