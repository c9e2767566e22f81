"""Tables of publishers of whom no fit has anything, read last: a supercomputer's and Amazon's machines under
TensorFlow's parameter servers, a Japanese vendor's workstations and servers with GeForce and Quadro cards, PyTorch's own benchmark of
DDP, and what users of Amazon's p3 machines asked about. Copied by hand; `import_published.py` writes them. No constant,
interval or stack is fitted to them."""

from collections.abc import Iterator

from import_judges import Cluster, Rates, Series, rows_of
from import_stacks import Row

_DAINT = Cluster("Piz Daint", "p100-pcie-16gb", "workstation", 1, "tcp 80 1")
_P2_8 = Cluster("p2.8xlarge", "k80", "dual-root", 8, "tcp 10 1")
_P2_1 = Cluster("p2.xlarge", "k80", "workstation", 1, "")
_NO_RATE = "Amazon gives no rate for the network of p2.xlarge"
# (machines, strategy, why it is left out, images a second by GPUs with synthetic and with real data)
_CSCS: tuple[tuple[Cluster, str, str, Rates, Rates], ...] = (
    (_DAINT, "parameter-server", "",
     {1: 138.23, 2: 264.57, 4: 523.38, 8: 1018.18, 16: 2001.00, 32: 3840.35, 64: 7118.31, 128: 9219.70},
     {1: 137.03, 2: 260.84, 4: 516.71, 8: 911.84, 16: 1772.34, 32: 3425.55, 64: 6348.74, 128: 9055.64}),
    (_P2_8, "distributed-replicated", "",
     {1: 30.55, 2: 58.38, 4: 116.34, 8: 230.75, 16: 448.57, 32: 863.72, 64: 1731.31, 128: 3333.20},
     {1: 30.04, 2: 58.23, 4: 115.56, 8: 190.02, 16: 387.67, 32: 717.49, 64: 1430.28, 128: 2832.83}),
    (_P2_1, "parameter-server", _NO_RATE,
     {2: 57.45, 4: 114.57, 8: 228.41, 16: 431.64, 32: 825.64, 64: 996.32, 128: 1077.59},
     {2: 56.93, 4: 113.03, 8: 224.06, 16: 431.31, 32: 734.97, 64: 986.91, 128: 1080.12}),
)  # fmt: skip


def cscs() -> Iterator[Row]:
    yield from rows_of(
        Series(
            machines,
            f"CSCS {machines.name}",
            "tf-cnn-benchmarks",
            strategy,
            f"{machines.name} {data}",
            "inception-v3",
            64,
            rates,
            skip=skip,
        )
        for machines, strategy, skip, synthetic, real in _CSCS
        for data, rates in (("synthetic", synthetic), ("real", real))
    )


_RTX_2080_TI = Cluster("2080 Ti", "rtx-2080-ti", "dual-socket", 10, "")
_RTX_8000 = Cluster("RTX 8000", "quadro-rtx-8000", "dual-socket", 4, "")
_RTX_3090 = Cluster("3090", "rtx-3090", "dual-socket", 8, "")
_RTX_4090 = Cluster("4090", "rtx-4090", "dual-socket", 8, "")
# (machines, our model, images a GPU) → images a second by the number of GPUs, all in fp16
_HPCDIY: dict[tuple[Cluster, str, int], Rates] = {
    (_RTX_2080_TI, "resnet50", 128): {1: 808.94, 2: 1473.41, 4: 2629.64, 8: 4898.68, 10: 6061.55},
    (_RTX_2080_TI, "inception-v3", 128): {
        1: 482.45,
        2: 901.23,
        4: 1695.87,
        8: 3266.71,
        10: 4048.04,
    },
    (_RTX_2080_TI, "vgg16", 64): {1: 393.98, 2: 598.41, 4: 780.44, 8: 1298.8, 10: 1599.04},
    (_RTX_2080_TI, "resnet152", 64): {1: 328.01, 2: 534.75, 4: 881.21, 8: 1569.11, 10: 1962.03},
    (_RTX_8000, "resnet50", 1024): {1: 1046.94, 2: 2047.45, 4: 4066.72},
    (_RTX_8000, "inception-v3", 512): {1: 627.24, 2: 1225.64, 4: 2452.15},
    (_RTX_8000, "vgg16", 512): {1: 621.07, 2: 1189.83, 4: 2397.81},
    (_RTX_8000, "resnet152", 512): {1: 488.37, 2: 885.59, 4: 1733.01},
    (_RTX_3090, "resnet50", 64): {1: 1026.83, 2: 1828.21, 4: 2798.55, 8: 4039.44},
    (_RTX_3090, "resnet50", 128): {1: 1126.66, 2: 2103.69, 4: 3596.61, 8: 6005.06},
    (_RTX_3090, "resnet50", 256): {1: 1181.90, 2: 2283.06, 4: 4266.43, 8: 7362.66},
    (_RTX_3090, "resnet50", 512): {1: 1205.02, 2: 2371.21, 4: 4635.48, 8: 8756.00},
    (_RTX_3090, "inception-v3", 64): {1: 709.40, 2: 1304.37, 4: 2247.00, 8: 3549.19},
    (_RTX_3090, "inception-v3", 128): {1: 764.99, 2: 1382.01, 4: 2692.60, 8: 4865.46},
    (_RTX_3090, "inception-v3", 256): {1: 806.46, 2: 1573.15, 4: 2979.08, 8: 5598.28},
    (_RTX_3090, "vgg16", 64): {1: 419.83, 2: 589.37, 4: 703.38, 8: 634.67},
    (_RTX_3090, "vgg16", 128): {1: 439.85, 2: 756.71, 4: 949.62, 8: 1093.66},
    (_RTX_3090, "vgg16", 256): {1: 455.41, 2: 821.34, 4: 1303.34, 8: 1695.73},
    (_RTX_3090, "vgg16", 512): {1: 440.25, 2: 838.75, 4: 1356.53, 8: 2171.86},
    (_RTX_4090, "resnet50", 64): {1: 1688.03, 2: 2794.01, 4: 4233.10},
    (_RTX_4090, "resnet50", 128): {1: 1748.98, 2: 3145.92, 4: 5548.25},
    (_RTX_4090, "resnet50", 256): {1: 1776.41, 2: 3357.26, 4: 6142.79},
    (_RTX_4090, "resnet50", 512): {1: 1760.89, 2: 3408.95, 4: 6582.35},
    (_RTX_4090, "inception-v3", 64): {1: 1243.98, 2: 2046.64, 4: 3274.80},
}


def hpcdiy() -> Iterator[Row]:
    yield from rows_of(
        Series(
            machines,
            f"HPCDIY {machines.name}",
            "tf-cnn-benchmarks",
            "ddp",
            machines.name,
            model,
            batch,
            rates,
            "fp16",
            gradient_bits=16,
            # GeForce cards don't reach each other's memory, Quadros do
            peer=int(machines is _RTX_8000),
        )
        for (machines, model, batch), rates in _HPCDIY.items()
    )


_DGX_1 = Cluster("DGX-1", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "rdma 100 4")
# images a second of each GPU, by their number; one GPU is without DDP
_PYTORCH: dict[str, Rates] = {
    "resnet50": {1: 329, 2: 310, 4: 310, 8: 307, 16: 306},
    "resnet101": {1: 197, 2: 182, 4: 182, 8: 179, 16: 178},
}


def pytorch_ddp() -> Iterator[Row]:
    yield from rows_of(
        Series(
            _DGX_1,
            "PyTorch DDP benchmark",
            "pytorch-ddp",
            "ddp",
            "DGX-1",
            model,
            32,
            {gpus: gpus * rate for gpus, rate in each.items()},
        )
        for model, each in _PYTORCH.items()
    )


_P3 = Cluster("p3.16xlarge", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "tcp 25 1 10")


def users() -> Iterator[Row]:
    """What people said that they had measured, when they asked whether that is right."""
    yield from rows_of((
        Series(
            _P3, "User of deep-learning-models", "horovod", "horovod", "Deep Learning AMI", "resnet50", 256,
            {1: 740, 2: 1481.3, 8: 5000, 16: 9860, 32: 21300, 64: 37000}, "fp16",
        ),
        Series(
            _P3, "User of Horovod", "horovod", "horovod", "Kubernetes", "resnet50", 64,
            {4: 1399.38, 8: 2697.29, 16: 2632.95, 32: 4772.04, 64: 9745.38},
        ),
        Series(
            _P3, "User of Gluon", "mxnet-kvstore", "distributed-replicated", "p3.8xlarge", "vgg16", 32,
            {1: 214.5, 2: 405.5, 4: 817.5},
        ),
    ))  # fmt: skip
