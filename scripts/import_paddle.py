"""PaddlePaddle's own benchmarks, in the columns that `import_published.py` writes.

They come from its Perf repository, which compares four software stacks on four machines with 8 V100 and one EDR port each, and
from its FleetX documentation. The numbers were copied by hand. No constant or interval is fitted to them: they only test
predictions.
"""

from collections.abc import Iterator
from typing import NamedTuple

from import_stacks import Row, skip_wrong_baselines

_ONE, _EIGHT, _ALL = 1, 8, 32


class Series(NamedTuple):
    """Samples per second of one program by its number of GPUs; `passes` counts the passes per exchange."""

    source: str
    framework: str
    strategy: str
    program: str
    model: str
    batch: int
    precision: str
    gradient_bits: int
    samples_per_second: dict[int, float]
    passes: dict[int, int] | None = None
    skip: str = ""


# 67,584 samples per update: TensorFlow and PyTorch keep this for any number of GPUs, Paddle assumes eight GPUs
_SHARED = {_ONE: 704, _EIGHT: 88, _ALL: 22}
_FIXED = {_ONE: 88, _EIGHT: 88, _ALL: 88}
_PADDLE = ("Paddle Perf Paddle", "paddle", "ddp")
_TF = ("Paddle Perf NGC TensorFlow", "horovod", "horovod")
_TORCH = ("Paddle Perf NGC PyTorch", "apex", "ddp")
_MXNET = ("Paddle Perf NGC MXNet", "horovod", "horovod")
_FLEET = ("Paddle FleetX", "paddle", "ddp")
_TWO_BATCHES = "its batch on one and on several GPUs is not the same"
_SERIES = (
    Series(*_PADDLE, "ResNet50V1.5", "resnet50", 96, "fp32", 32, {1: 377.21, 8: 2906.887, 32: 11366.6}),
    Series(*_PADDLE, "ResNet50V1.5", "resnet50", 128, "fp16", 32, {1: 1342.56, 8: 8690.84, 32: 29715.2}),
    Series(*_PADDLE, "ResNet50V1.5", "resnet50", 208, "fp16", 32, {1: 1396.573, 32: 34302.5}),
    Series(*_TF, "ResNet50V1.5", "resnet50", 128, "fp32", 32, {1: 407.7, 8: 3070.5, 32: 11622.9}),
    Series(*_TF, "ResNet50V1.5", "resnet50", 128, "fp16", 32, {1: 1108.9, 8: 7695.6, 32: 27528.0}),
    Series(*_TF, "ResNet50V1.5", "resnet50", 256, "fp16", 32, {1: 1228.7, 8: 8378.0, 32: 33695.0}),
    Series(*_TORCH, "ResNet50V1.5", "resnet50", 128, "fp32", 32, {1: 369.63, 8: 2795.87, 32: 10393.2}),
    Series(*_TORCH, "ResNet50V1.5", "resnet50", 128, "fp16", 32, {1: 807.56, 8: 5790.0, 32: 17940.7}),
    Series(*_TORCH, "ResNet50V1.5", "resnet50", 256, "fp16", 32, {1: 815.53, 32: 21588.1}),
    Series(*_TORCH, "ResNet50V1.5", "resnet50", 254, "fp16", 32, {8: 6215.18}, skip=_TWO_BATCHES),
    Series(*_MXNET, "ResNet50V1.5", "resnet50", 96, "fp32", 32, {1: 387.1, 8: 2998.1}),
    Series(*_MXNET, "ResNet50V1.5", "resnet50", 128, "fp16", 16, {1: 1380.6, 8: 9218.9}),
    Series(*_MXNET, "ResNet50V1.5", "resnet50", 192, "fp16", 16, {1: 1447.6, 8: 9765.6}),
    Series(*_PADDLE, "Bert", "bert-base", 96, "fp32", 32, {1: 166.407, 8: 1329.233, 32: 4829.904}, _FIXED),
    Series(*_PADDLE, "Bert", "bert-base", 96, "fp16", 32, {1: 693.763, 8: 5567.137, 32: 20054.43}, _FIXED),
    Series(*_TF, "Bert", "bert-base", 96, "fp32", 32, {1: 160.557, 8: 1242.14, 32: 4238.53}, _SHARED),
    Series(*_TF, "Bert", "bert-base", 96, "fp16", 16, {1: 537.655, 8: 4086.07, 32: 16142.92}, _SHARED),
    Series(*_TORCH, "Bert", "bert-base", 96, "fp32", 32, {1: 158.642, 8: 1233.15, 32: 3496.94}, _SHARED),
    Series(*_TORCH, "Bert", "bert-base", 96, "fp16", 16, {1: 641.511, 8: 5072.0, 32: 16610.6}, _SHARED),
    Series(*_PADDLE, "Transformer", "transformer-big", 5120, "fp32", 32, {1: 8852.222, 8: 63176.869}),
    Series(*_PADDLE, "Transformer", "transformer-big", 5120, "fp16", 16, {1: 33168.183, 8: 225409.915}),
    Series(*_TORCH, "Transformer", "transformer-big", 5120, "fp32", 32, {1: 9037.34, 8: 65075.0, 32: 166352.6}),
    Series(*_TORCH, "Transformer", "transformer-big", 5120, "fp16", 16, {1: 32406.5, 8: 209138.0, 32: 590188.7}),
    Series(*_PADDLE, "Transformer", "transformer-big", 5120, "fp32", 32, {32: 194040.4},
           skip="two figures are given, and its log names another batch"),
    Series(*_PADDLE, "Transformer", "transformer-big", 5120, "fp16", 16, {32: 678315.9},
           skip="two figures are given"),
    Series(*_FLEET, "resnet50", "resnet50", 32, "fp32", 32, {8: 2488.49, 16: 4629.71, 32: 9093.41}),
    Series(*_FLEET, "resnet50", "resnet50", 64, "fp32", 32, {8: 2643.75, 16: 5325.44, 32: 10536.83}),
    Series(*_FLEET, "resnet50", "resnet50", 128, "fp32", 32, {8: 2797.31, 16: 5635.98, 32: 11261.72}),
    Series(*_FLEET, "resnet50", "resnet50", 32, "fp16", 32, {8: 4467.82, 16: 8628.19, 32: 16970.01}),
    Series(*_FLEET, "resnet50", "resnet50", 64, "fp16", 32, {8: 6148.98, 16: 12071.29, 32: 23682.78}),
    Series(*_FLEET, "resnet50", "resnet50", 128, "fp16", 32, {8: 7324.31, 16: 14342.03, 32: 28397.43}),
    Series(*_FLEET, "resnet50", "resnet50", 256, "fp16", 32, {8: 8166.11, 16: 16189.79, 32: 32366.39}),
)  # fmt: skip


def convert_paddle() -> Iterator[Row]:
    yield from skip_wrong_baselines([row for series in _SERIES for row in _build_rows(series)])


def _build_rows(series: Series) -> Iterator[Row]:
    for gpus, rate in series.samples_per_second.items():
        nodes = -(-gpus // 8)
        yield {
            "source": series.source,
            "framework": series.framework,
            "series": f"{series.source.removeprefix('Paddle ')} {series.program}",
            "model": series.model,
            "gpu": "v100-sxm2-32gb",
            "topology": "nvlink-hybrid-cube-mesh",
            "peer": 1,
            "nodes": nodes,
            "gpus": gpus,
            "batch": series.batch,
            "accumulate": series.passes[gpus] if series.passes else 1,
            "precision": series.precision,
            "gradient_bits": series.gradient_bits,
            "strategy": series.strategy,
            "network": "rdma 100 1" if nodes > 1 else "",
            "samples_per_second": rate,
            "skip": series.skip,
        }
