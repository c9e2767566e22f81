"""The metric of one row of a table, in any common spelling: its quantity, its unit, and whether it is per GPU."""

import re
from dataclasses import dataclass
from typing import Literal

Quantity = Literal["tokens", "samples", "steps", "step time", "flops", "mfu", "memory", "oom"]

_WORDS = {
    word: canonical
    for canonical, words in {
        "gpu": "gpu device devices card chip accelerator rank npu hpu gcd xpu worker",
        "all": "total all aggregate aggregated global cluster overall gpus system",
        "tokens": "token tok toks tokens words",
        "samples": "sample samples sequence sequences seq seqs example examples sentence sentences",
        "step": "step steps iteration iterations iter iters it its batch update",
        "s": "s sec secs second seconds",
        "ms": "ms msec millisecond milliseconds",
        "min": "min minute minutes",
        "h": "h hr hour hours",
        "day": "day days",
        "time": "time latency duration elapsed",
        "flops": "flop flops flopsec",
        "tflops": "tflop tflops teraflop teraflops",
        "pflops": "pflop pflops petaflop petaflops",
        "mfu": "mfu utilization utilisation",
        "hardware": "hw hardware",
        "memory": "mem memory vram allocated alloc reserved active hbm",
        "gib": "gib", "mib": "mib", "kib": "kib", "gb": "gb", "mb": "mb", "kb": "kb",
        "bytes": "byte bytes b",
        "percent": "% percent pct",
        "oom": "oom ooms",
    }.items()
    for word in words.split()
}  # fmt: skip
_SEVERAL = {"tps": ("tokens", "s"), "wps": ("tokens", "s"), "sps": ("samples", "s"),
            "tgs": ("tokens", "s", "gpu"), "hfu": ("mfu", "hardware"),
            "ktok": ("k", "tokens"), "ktokens": ("k", "tokens")}  # fmt: skip
_SECONDS = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0, "day": 86400.0}
_FLOPS = {"flops": 1.0, "tflops": 1e12, "pflops": 1e15}
_BYTES = {"gib": 2**30, "mib": 2**20, "kib": 2**10, "gb": 10**9, "mb": 10**6, "kb": 10**3, "bytes": 1}  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """A quantity; `scale` converts the table's unit to tokens, samples, or steps per second, seconds, FLOP/s, or bytes."""

    quantity: Quantity
    scale: float | None = 1.0  # None: no unit is stated
    per_gpu: bool | None = False  # None: neither per GPU nor total is stated
    hardware: bool = False  # recomputation is counted too


def parse_metric(text: str) -> Metric | None:
    """Return the metric that a cell names, or None if it is not one that gpuyard predicts."""
    plain = re.sub(r"\(([^()]*)\)", _keep_unit, text.lower())
    order: list[str] = []
    for word in re.findall(r"[a-z]+|%", plain):
        order += _SEVERAL.get(word) or [_WORDS.get(word, word)]
    words = set(order)
    if "oom" in words or {"out", "memory"} <= words:
        return Metric("oom")
    unit = next((_BYTES[word] for word in order if word in _BYTES), None)
    if "memory" in words or (unit and words <= {*_BYTES, "gpu", "per", "peak", "max"}):
        return Metric("memory", unit)
    per_gpu = False if "all" in words else True if "gpu" in words else None
    hardware = "hardware" in words
    if "mfu" in words:
        return Metric("mfu", 0.01 if "percent" in words else None, per_gpu=True, hardware=hardware)
    if scale := next((_FLOPS[word] for word in order if word in _FLOPS), None):
        return Metric("flops", scale, per_gpu, hardware)
    return _parse_rate(order, per_gpu=bool(per_gpu))


def _keep_unit(match: re.Match[str]) -> str:
    """Keep a unit in parentheses, as in "step time (ms)"; other remarks say nothing of the metric."""
    words = re.findall(r"[a-z]+|%", match[1])
    return (
        f" {match[1]} "
        if len(words) <= 3 and all(word in {*_WORDS, *_SEVERAL, "per"} for word in words)
        else " "
    )


def _parse_rate(order: list[str], *, per_gpu: bool) -> Metric | None:
    seconds = next((_SECONDS[word] for word in order if word in _SECONDS), None)
    quantity: Quantity
    for quantity in ("tokens", "samples"):
        if quantity in order and seconds and "time" not in order:
            thousands = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "billion": 1e9}
            scale = next((thousands[word] for word in order if word in thousands), 1.0)
            return Metric(quantity, scale / seconds, per_gpu)
    if "step" not in order:
        return None
    if "time" not in order and seconds and order.index("step") < _first_time(order):
        return Metric("steps", 1 / seconds)
    return Metric("step time", seconds or 1.0)


def _first_time(order: list[str]) -> int:
    return next(index for index, word in enumerate(order) if word in _SECONDS)
