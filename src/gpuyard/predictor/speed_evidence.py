"""Correct the roofline of one GPU by published throughputs.

The correction is a Gaussian process on log(measured / roofline seconds). Its covariance is a sum of shared effects: two
cases are alike if they share the family, the model, the precision, the GPU or its architecture, the memory layout, or
the publisher. So a figure for the same model and GPU counts most, and one of the same family on another GPU still
counts. The variance of each effect is fitted by `scripts/fit_speed.py`, which writes `data/speed.json`.

A user is a publisher that was never seen: differences between publishers are part of the uncertainty.
"""

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.catalog.models import find_family
from gpuyard.specs import Precision

Floats = npt.NDArray[np.float64]
Kind = Literal["convolution", "matrix", "recurrent"]
# One σ of a vendor's software if no figure of that vendor is published. Assumed: public comparisons of MI300X and H100
# range from a half to the ratio of their datasheets.
UNKNOWN_VENDOR_SIGMA = 0.4
# torch.compile on an A100, mean of 163 models (pytorch.org/get-started/pytorch-2.0): 1.21 in fp32 and 1.51 in mixed
# precision. XLA's published figures correct it.
COMPILER_GAIN = {"fp32": 1.21, "tf32": 1.21, "half": 1.51}
# Attention with its matrix in memory against fused attention (arXiv:2205.14135): 1.15 for BERT large with 512 tokens, and
# 1.7 for GPT-2 with 1,024 against Megatron-LM. The matrix grows with the square of the tokens. The gain was measured on
# few models, so one σ is half of it.
UNFUSED_ATTENTION_COST = 0.7
_UNFUSED_TOKENS = 1024
_FUSED_ATTENTION_DOUBT = 0.5
_SEQUENCE = re.compile(r"sequence of (\d+) tokens")
_IMAGE = re.compile(r"image 3×(\d+)×")
_PATCH = re.compile(r"(?:patch|-)(8|14|16|32)(?:\D|$)")


@dataclass(frozen=True)
class Case:
    """A model on a GPU with the settings that decide its speed; a prediction has no publisher."""

    model: str
    family: str | None
    kind: Kind
    gpu: str
    architecture: str
    vendor: str
    units: str  # the arithmetic units in use: fp32, tf32, or half
    channels_last: bool = False
    compiled: bool = False
    tokens: int = 0  # that a transformer's tokens attend to
    fused_attention: bool = False
    publisher: str | None = None
    stack: str | None = None

    @property
    def log_expected(self) -> float:
        """The expected logarithm of the correction, before any published figure."""
        compiler = -math.log(COMPILER_GAIN[self.units]) if self.compiled else 0.0
        return compiler + (0.0 if self.fused_attention else self._log_attention)

    @property
    def expected_sigma(self) -> float:
        """One σ of that expectation, as far as no effect contains it."""
        return _FUSED_ATTENTION_DOUBT * self._log_attention if self.fused_attention else 0.0

    @property
    def _log_attention(self) -> float:
        return math.log(1 + UNFUSED_ATTENTION_COST * (self.tokens / _UNFUSED_TOKENS) ** 2)

    @property
    def settings(self) -> tuple[object, ...]:
        """Everything except the publisher."""
        return (self.model, self.gpu, self.units, self.channels_last, self.compiled, self.fused_attention)  # fmt: skip

    def effects(self) -> dict[str, tuple[object, ...] | None]:
        """Return the label of every effect; two cases share an effect if their labels are equal and not None."""
        speed = (self.kind, self.units)
        family = (self.family, self.units) if self.family else None
        published = self.publisher is not None
        return {
            "kind": speed,
            "family": family,
            "model": (self.model,),
            "architecture": (self.architecture, self.units),
            "architecture of kind": (self.architecture, *speed),
            "gpu": (self.gpu,),
            "gpu of kind": (self.gpu, *speed),
            "layout": speed if self.channels_last else None,
            "layout of family": family if self.channels_last else None,
            "layout of model": (self.model, self.units) if self.channels_last else None,
            "compiler": speed if self.compiled else None,
            "model on gpu": (self.model, self.gpu, self.units),
            "publisher": (self.publisher,) if published else None,
            "publisher of family": (self.publisher, self.family, self.units) if published else None,
            # programs for transformers differ more than those for images
            "publisher of matrix": (self.publisher, self.units)
            if published and self.kind == "matrix"
            else None,
            "publisher of gpu": (self.publisher, self.gpu, self.units) if published else None,
            "stack": (self.stack, *speed) if published else None,
        }


EFFECTS = tuple(Case("", None, "matrix", "", "", "", "").effects())
# they differ for every new publisher, so a prediction shares none of them and is uncertain by all of them
PUBLISHER_EFFECTS = (
    "publisher",
    "publisher of family",
    "publisher of matrix",
    "publisher of gpu",
    "stack",
)
NOISE = "noise"


def create_case(
    model: str,
    profile: ModelProfile,
    gpu: Gpu,
    used: Precision,
    *,
    channels_last: bool = False,
    compiled: bool = False,
    fused_attention: bool = False,
    publisher: str | None = None,
    stack: str | None = None,
) -> Case:
    """Create a case; `used` is the precision whose rate the GPU reaches."""
    family = find_family(model)
    convolutional = profile.mostly_cudnn and family != "rnn"
    return Case(
        model,
        family,
        "recurrent" if family == "rnn" else "convolution" if convolutional else "matrix",
        gpu.id,
        gpu.architecture,
        gpu.vendor,
        "half" if used in ("fp16", "bf16") else used,
        # only the tensors of convolutions have another layout
        channels_last=channels_last and convolutional,
        compiled=compiled,
        tokens=(tokens := _count_tokens(model, family, profile)),
        fused_attention=fused_attention and tokens > 0,
        publisher=publisher,
        stack=stack,
    )


def _count_tokens(model: str, family: str | None, profile: ModelProfile) -> int:
    """Return the tokens that each token attends to, 0 for a model that is not known to be a transformer."""
    if family in ("bert", "gpt") and (tokens := _SEQUENCE.search(profile.sample)):
        return int(tokens[1])
    if family == "vit" and (size := _IMAGE.search(profile.sample)):
        patch = _PATCH.search(model)
        return (int(size[1]) // (int(patch[1]) if patch else 16)) ** 2
    return 0


@dataclass(frozen=True)
class Correction:
    """The factor of a roofline's seconds, as a logarithm, with one σ; `figures` are the rows for this very case."""

    log_factor: float
    sigma: float
    figures: tuple[int, ...]
    gpu_known: bool
    family_known: bool  # in this precision and layout
    vendor_known: bool


class SpeedEvidence:
    """Published throughputs of one GPU, ready to correct rooflines."""

    def __init__(
        self, cases: Sequence[Case], log_ratios: Sequence[float], variances: Mapping[str, float]
    ) -> None:
        self.cases = tuple(cases)
        self._variances = dict(variances)
        self._members: dict[str, dict[object, list[int]]] = {effect: {} for effect in EFFECTS}
        for number, case in enumerate(cases):
            for effect, label in case.effects().items():
                if label is not None:
                    self._members[effect].setdefault(label, []).append(number)
        self._figures: dict[object, list[int]] = {}
        for number, case in enumerate(cases):
            self._figures.setdefault(case.settings, []).append(number)
        covariance = variances[NOISE] * np.eye(len(cases))
        for effect, groups in self._members.items():
            for members in groups.values():
                covariance[np.ix_(members, members)] += variances[effect]
        self._precision_matrix = np.linalg.inv(covariance)
        expected = np.array([case.log_expected for case in cases])
        self._weights = self._precision_matrix @ (np.array(log_ratios) - expected)
        self._vendors = {case.vendor for case in cases}
        self._gpus = {case.gpu for case in cases}

    def correct(self, case: Case) -> Correction:
        """Return the expected correction of a case that a new publisher would measure."""
        covariances = np.zeros(len(self.cases))
        variance = self._variances[NOISE]
        for effect, label in case.effects().items():
            of_new_publisher = effect in PUBLISHER_EFFECTS and (
                effect != "publisher of matrix" or case.kind == "matrix"
            )
            if of_new_publisher or (label is not None and effect not in PUBLISHER_EFFECTS):
                variance += self._variances[effect]
            if effect not in PUBLISHER_EFFECTS:
                covariances[self._members[effect].get(label, [])] += self._variances[effect]
        variance -= float(covariances @ self._precision_matrix @ covariances)
        if case.family is None:
            variance += self._variances["family"]
        if case.vendor not in self._vendors:
            variance += UNKNOWN_VENDOR_SIGMA**2
        variance += case.expected_sigma**2
        return Correction(
            float(covariances @ self._weights) + case.log_expected,
            float(np.sqrt(variance)),
            tuple(self._figures.get(case.settings, ())),
            case.gpu in self._gpus,
            self._knows_family(case),
            case.vendor in self._vendors,
        )

    def hold_out(self, rows: Sequence[int]) -> tuple[Floats, Floats]:
        """Return log(measured / predicted) and one σ of rows, predicted from all others.

        If a publisher's rows are all among them, this is the prediction for a new publisher. The formulas are those of
        conditional normal distributions: the inverse of a block of the inverse covariance.
        """
        covariance = np.linalg.inv(self._precision_matrix[np.ix_(rows, rows)])
        return covariance @ self._weights[rows], np.sqrt(np.diag(covariance))

    def _knows_family(self, case: Case) -> bool:
        labels = case.effects()
        effects = ("family", "layout of family") if case.channels_last else ("family",)
        return all(labels[effect] in self._members[effect] for effect in effects)


@functools.cache
def load_speed_evidence() -> SpeedEvidence:
    document = _load_document()
    return SpeedEvidence(
        [Case(**dict(zip(document["columns"], row, strict=True))) for row in document["rows"]],
        document["log_ratios"],
        document["variances"],
    )


def load_sigmas() -> dict[str, float]:
    """Return one σ of a step that is scaled from another GPU's, and of a roofline without correction."""
    sigmas: dict[str, float] = _load_document()["sigmas"]
    return sigmas


@functools.cache
def _load_document() -> dict[str, Any]:
    text = (resources.files(__package__) / "data" / "speed.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
