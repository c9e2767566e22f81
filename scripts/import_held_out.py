"""Held-out published tables, in the columns that `import_published.py` writes.

No constant, interval, or software stack is fitted to these tables: they only test predictions. All numbers were copied by hand
from the publishers' tables, charts, and logs; `sources.toml` beside the data names each publication.
"""

from collections.abc import Iterator
from typing import NamedTuple

from import_stacks import Row, skip_wrong_baselines

Rates = dict[int, float]


class Cluster(NamedTuple):
    """Machines of one kind and the network between them."""

    name: str
    gpu: str
    topology: str
    gpus_per_node: int
    network: str = ""
    fp32: str = "fp32"  # the precision behind PyTorch's default of 32 bits on these GPUs


class Series(NamedTuple):
    """Samples per second of one program at one batch size, by the number of GPUs."""

    machines: Cluster
    source: str
    framework: str
    strategy: str
    name: str
    model: str
    batch: int
    rates: Rates
    precision: str = "fp32"
    gradient_bits: int = 32
    peer: int = 1
    skip: str = ""


def build_held_out_tables() -> dict[str, list[Row]]:
    """Return the rows of every held-out table by the table's name."""
    return {
        name: list(skip_wrong_baselines([row for entry in series for row in _build_rows(entry)]))
        for name, series in _TABLES.items()
    }


def _build_rows(series: Series) -> Iterator[Row]:
    cells = series._asdict()
    machines, name, rates = (cells.pop(key) for key in ("machines", "name", "rates"))
    for gpus, rate in rates.items():
        nodes = -(-gpus // machines.gpus_per_node)
        yield {
            "gpu": machines.gpu,
            "topology": machines.topology,
            "nodes": nodes,
            "gpus": gpus,
            "network": machines.network if nodes > 1 else "",
            "series": name,
            "samples_per_second": rate,
            **cells,
        }


# CSC: ResNet-50 on its two clusters
_PUHTI = Cluster("Puhti", "v100-sxm2-32gb", "nvlink-hybrid-cube-mesh", 4, "rdma 100 2")
_MAHTI = Cluster("Mahti", "a100-sxm4-40gb", "full-mesh", 4, "rdma 200 1", "tf32")
# (cluster, program and data, day) → images per second by the number of GPUs
_CSC: tuple[tuple[Cluster, str, str, Rates], ...] = (
    (_MAHTI, "DDP synthetic", "2022-05-18", {1: 758.90, 4: 2836.54, 8: 5502.49}),
    (_MAHTI, "DDP ImageNet", "2022-05-18", {1: 759.19, 4: 2832.43, 8: 5492.90}),
    (_MAHTI, "Horovod synthetic", "2022-05-18", {8: 4967.57}),
    (_MAHTI, "Horovod ImageNet", "2022-05-18", {8: 4984.15}),
    (_MAHTI, "DDP synthetic", "2023-05-23", {1: 796.17, 4: 3132.06, 8: 5950.39}),
    (_MAHTI, "DDP ImageNet", "2023-05-23", {1: 793.94, 4: 3127.64, 8: 5954.15}),
    (_MAHTI, "Horovod synthetic", "2023-05-23", {8: 5248.05}),
    (_MAHTI, "Horovod ImageNet", "2023-05-23", {8: 5214.18}),
    (_MAHTI, "DDP synthetic", "2023-09-15", {1: 781.72, 4: 3054.03, 8: 5824.31}),
    (_MAHTI, "DDP synthetic fp16", "2023-09-15", {1: 1128.61, 4: 4153.99, 8: 7849.03}),
    (_MAHTI, "Lightning synthetic", "2023-09-15", {1: 798.08, 4: 3135.00, 8: 6010.30}),
    (_MAHTI, "DDP ImageNet", "2023-09-15", {1: 783.28, 4: 3067.25, 8: 5777.12}),
    (_MAHTI, "Horovod synthetic", "2023-09-15", {8: 5235.30}),
    (_MAHTI, "Horovod ImageNet", "2023-09-15", {8: 5230.77}),
    (_MAHTI, "DDP synthetic", "2023-09-28", {1: 784.38, 2: 1495.75, 4: 3081.61, 8: 5862.00}),
    (_MAHTI, "DDP synthetic fp16", "2023-09-28", {1: 1123.50, 2: 2125.94, 4: 4087.08, 8: 7851.35}),
    (_MAHTI, "Lightning synthetic", "2023-09-28", {1: 791.49, 4: 3137.78, 8: 5987.94}),
    (_MAHTI, "DDP ImageNet", "2023-09-28", {1: 781.59, 4: 3064.19, 8: 5819.76}),
    (_MAHTI, "Horovod synthetic", "2023-09-28", {8: 5252.11}),
    (_MAHTI, "Horovod ImageNet", "2023-09-28", {8: 5254.03}),
    (_MAHTI, "DDP synthetic", "2024-05-08", {1: 782.78, 2: 1537.99, 4: 3073.91, 8: 6005.52}),
    (_MAHTI, "DDP synthetic fp16", "2024-05-08", {1: 1056.39, 2: 2081.67, 4: 4003.18, 8: 7741.00}),
    (_MAHTI, "Lightning synthetic", "2024-05-08", {1: 781.86, 4: 3088.43, 8: 6080.61}),
    (_MAHTI, "DDP ImageNet", "2024-05-08", {1: 781.26, 4: 3069.75, 8: 6040.94}),
    (_PUHTI, "DDP synthetic", "2022-05-18", {1: 325.95, 4: 1217.10, 8: 2420.71}),
    (_PUHTI, "DDP ImageNet", "2022-05-18", {1: 328.21, 4: 1217.30, 8: 2431.23}),
    (_PUHTI, "Horovod synthetic", "2022-05-18", {8: 2220.04}),
    (_PUHTI, "DDP synthetic", "2023-05-08", {1: 333.44, 4: 1251.13, 8: 2289.89}),
    (_PUHTI, "DDP ImageNet", "2023-05-08", {1: 332.51, 4: 1251.10, 8: 2304.76}),
    (_PUHTI, "Horovod synthetic", "2023-05-08", {8: 1973.30}),
    (_PUHTI, "Horovod ImageNet", "2023-05-08", {8: 2189.90}),
    (_PUHTI, "DDP synthetic", "2023-09-16", {1: 331.39, 4: 1245.59, 8: 2473.86}),
    (_PUHTI, "DDP synthetic fp16", "2023-09-16", {1: 674.17, 4: 2389.34, 8: 4644.40}),
    (_PUHTI, "Lightning synthetic", "2023-09-16", {1: 331.98, 4: 1254.01, 8: 2488.49}),
    (_PUHTI, "DDP ImageNet", "2023-09-16", {1: 329.76, 4: 1244.49, 8: 2470.56}),
    (_PUHTI, "Horovod synthetic", "2023-09-16", {8: 2314.87}),
    (_PUHTI, "Horovod ImageNet", "2023-09-16", {8: 2313.93}),
    (_PUHTI, "DDP synthetic", "2023-09-28", {1: 329.27, 2: 520.80, 4: 1249.31, 8: 2465.86}),
    (_PUHTI, "DDP synthetic fp16", "2023-09-28", {1: 670.50, 2: 1186.25, 4: 2392.44, 8: 4655.31}),
    (_PUHTI, "Lightning synthetic", "2023-09-28", {1: 330.92, 4: 1252.09, 8: 2487.39}),
    (_PUHTI, "DDP ImageNet", "2023-09-28", {1: 329.29, 4: 1244.50, 8: 2468.76}),
    (_PUHTI, "Horovod synthetic", "2023-09-28", {8: 2310.85}),
    (_PUHTI, "Horovod ImageNet", "2023-09-28", {8: 2310.54}),
    (_PUHTI, "DDP synthetic", "2024-02-29", {1: 321.08, 2: 617.29, 4: 1235.02, 8: 2451.19}),
    (_PUHTI, "DDP synthetic fp16", "2024-02-29", {1: 659.29, 2: 1189.47, 4: 2386.29, 8: 4636.38}),
    (_PUHTI, "Lightning synthetic", "2024-02-29", {1: 315.48, 4: 1233.03, 8: 2445.32}),
    (_PUHTI, "DDP ImageNet", "2024-02-29", {1: 321.53, 4: 1234.59, 8: 2448.51}),
    (_PUHTI, "DDP synthetic", "2024-06-12", {1: 322.46, 2: 619.32, 4: 1232.84, 8: 2451.30}),
    (_PUHTI, "DDP synthetic fp16", "2024-06-12", {1: 657.66, 2: 1188.45, 4: 2390.30, 8: 4640.83}),
    (_PUHTI, "Lightning synthetic", "2024-06-12", {1: 319.27, 4: 1227.18, 8: 2445.87}),
    (_PUHTI, "DDP ImageNet", "2024-06-12", {1: 323.20, 4: 1232.57, 8: 2449.88}),
)
_CSC_FRAMEWORKS = {"DDP": "pytorch-ddp", "Lightning": "pytorch-ddp", "Horovod": "horovod"}


def _list_csc_series() -> Iterator[Series]:
    one_gpu = {
        (cluster, program.removeprefix("DDP "), day): rates[1]
        for cluster, program, day, rates in _CSC
        if program.startswith("DDP")
    }
    for cluster, program, day, rates in _CSC:
        software, variant = program.split(maxsplit=1)
        horovod = software == "Horovod"
        # Horovod ran on 8 GPUs only; its one-GPU figure is that of the DDP program with the same day and data
        baseline = {1: one_gpu[cluster, variant, day]} if horovod else {}
        yield Series(
            cluster,
            f"CSC {cluster.name} {software}",
            _CSC_FRAMEWORKS[software],
            "horovod" if horovod else "ddp",
            f"{cluster.name} {program} {day}",
            "resnet50",
            32,
            baseline | rates,
            "fp16" if "fp16" in program else cluster.fp32,
        )


# Azure: Horovod on three kinds of virtual machines
class Chart(NamedTuple):
    """The bars of one chart: their heights in pixels by the number of GPUs, and the images per second of one pixel."""

    machines: Cluster
    model: str
    images_per_pixel: float
    intel_mpi: Rates
    nccl: Rates


_K80 = Cluster("K80", "k80", "workstation", 4, "rdma 56 1")
_P100 = Cluster("P100", "p100-pcie-16gb", "workstation", 4, "rdma 56 1")
_V100 = Cluster("V100", "v100-pcie-16gb", "workstation", 4, "rdma 56 1")
# grid lines are drawn at whole pixels and bars are not, so the scale comes from the furthest line
_AZURE = (
    Chart(_V100, "resnet50", 6000 / 436,
          {1: 24.38934, 2: 48.54249, 3: 56.16405, 4: 71.14519, 8: 131.44396, 16: 247.38628, 32: 473.33333},
          {1: 25.39439, 2: 48.97125, 3: 69.10542, 4: 90.36049, 8: 90.61021, 16: 160.57648, 32: 310.18616}),
    Chart(_V100, "resnet152", 2500 / 444,
          {1: 25.16013, 2: 49.55031, 3: 59.57155, 4: 73.96267, 8: 135.68257, 16: 167.15502, 32: 473.33333},
          {1: 25.09272, 2: 49.45274, 3: 69.39350, 4: 92.00294, 8: 91.25272, 16: 157.52061, 32: 321.92696}),
    Chart(_P100, "resnet50", 6000 / 488,
          {1: 18.41685, 2: 35.51653, 3: 53.17703, 4: 70.19345, 8: 131.40912, 16: 247.31963, 32: 473.33333},
          {1: 18.71950, 2: 35.40710, 3: 52.63194, 4: 69.60869, 8: 89.37252, 16: 162.68038, 32: 320.76196}),
    Chart(_K80, "resnet50", 1500 / 431,
          {1: 14.94087, 2: 30.07129, 3: 45.09832, 4: 59.36998, 8: 118.49009, 16: 236.44381, 32: 473.33333},
          {1: 14.93225, 2: 31.35227, 3: 43.70534, 4: 44.25463, 8: 91.26724, 16: 159.32383, 32: 283.13249}),
)  # fmt: skip
_UNKNOWN_ETHERNET = "the rate of the Ethernet between the machines is not stated"


def _list_azure_series() -> Iterator[Series]:
    for chart in _AZURE:
        machines = chart.machines
        for library, heights in (("Intel MPI", chart.intel_mpi), ("NCCL", chart.nccl)):
            for gpus, pixels in heights.items():
                ethernet = library == "NCCL" and gpus > machines.gpus_per_node
                yield Series(
                    machines._replace(network="") if ethernet else machines,
                    f"Azure {library}",
                    "horovod",
                    "horovod",
                    f"{library} {machines.name}",
                    chart.model,
                    64,
                    {gpus: round(pixels * chart.images_per_pixel, 1)},
                    peer=0,
                    skip=_UNKNOWN_ETHERNET if ethernet else "",
                )


# MXNet: up to 256 K80s
_P2 = Cluster("p2.16xlarge", "k80", "dual-root", 16, "tcp 20 1")
# (model, images per GPU) → images per second by the number of GPUs
_MXNET: dict[tuple[str, int], Rates] = {
    ("alexnet", 512): {1: 457.07, 2: 870.43, 4: 1514.8, 8: 2852.5, 16: 4244.18, 32: 7945.57, 64: 15840.52,
                       128: 31334.88, 256: 61938.36},
    ("inception-v3", 32): {1: 30.4, 2: 59.61, 4: 117.9, 8: 233.39, 16: 447.61, 32: 882.57, 64: 1761.24,
                           128: 3416.2, 256: 6660.98},
    ("resnet152", 32): {1: 20.8, 2: 38.76, 4: 77.01, 8: 153.07, 16: 298.03, 32: 595.53, 64: 1179.86,
                        128: 2333.47, 256: 4630.42},
}  # fmt: skip

# MLPerf: the logs of two rounds
_DGX_1 = Cluster("DGX-1", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "rdma 100 4")
_DGX_2H = Cluster("DGX-2H", "v100-sxm3-32gb", "nvswitch", 16, "rdma 100 8")
_DGX_A100 = Cluster("DGX A100", "a100-sxm4-80gb", "nvswitch", 8, "rdma 200 8")
_ND96 = Cluster("ND96amsr", "a100-sxm4-80gb", "nvswitch", 8, "rdma 200 8")
_R750XA = Cluster("R750xa", "a100-pcie-80gb", "workstation", 4, "rdma 100 1")
_UNSTEADY = "single epochs of the log differ threefold"
# (round and submitter, machines, model) → (GPUs, samples per GPU, samples per second, why it is skipped)
_MLPERF_LOGS: tuple[tuple[str, Cluster, str, tuple[tuple[int, int, float, str], ...]], ...] = (
    ("v0.6 NVIDIA", _DGX_1, "resnet50", ((8, 208, 11217.7, ""), (1040, 52, 1148459, ""))),
    ("v0.6 NVIDIA", _DGX_2H, "resnet50",
     ((16, 208, 24653.7, ""), (512, 65, 635027, ""), (1536, 39, 1649175, ""))),
    ("v1.1 NVIDIA", _DGX_A100, "resnet50",
     ((8, 408, 26325.8, ""), (64, 51, 167176, ""), (1024, 35, 2300591, ""), (4320, 15, 6883552, _UNSTEADY))),
    ("v1.1 NVIDIA", _DGX_A100, "bert-large", ((8, 56, 2281.1, ""), (64, 48, 17936, ""), (1024, 3, 85489, ""))),
    ("v1.1 Azure", _ND96, "resnet50", ((8, 408, 26191.6, ""), (64, 51, 165603, ""))),
    ("v1.1 Azure", _ND96, "bert-large", ((8, 56, 2124.5, ""), (64, 48, 16260, ""))),
    ("v1.1 Dell", _R750XA, "resnet50",
     ((4, 408, 11974.2, ""), (8, 408, 23465.2, ""), (16, 204, 43462, ""), (32, 408, 90707.7, ""))),
)  # fmt: skip


def _list_mlperf_series() -> Iterator[Series]:
    for submission, machines, model, results in _MLPERF_LOGS:
        bert = model == "bert-large"
        for gpus, batch, rate, skip in results:
            yield Series(
                machines,
                f"MLPerf {submission}",
                "apex" if bert else "horovod",
                "ddp-after-backward" if bert else "horovod",
                f"{submission} {machines.name}",
                model,
                batch,
                {gpus: rate},
                "fp16",
                gradient_bits=16,
                skip=skip,
            )


# CSCS: TensorFlow's parameter servers on a supercomputer and on Amazon's machines
_DAINT = Cluster("Piz Daint", "p100-pcie-16gb", "workstation", 1, "tcp 80 1")
_P2_8 = Cluster("p2.8xlarge", "k80", "dual-root", 8, "tcp 10 1")
_P2_1 = Cluster("p2.xlarge", "k80", "workstation", 1, "")
_NO_RATE = "Amazon gives no rate for the network of p2.xlarge"
# (machines, strategy, why it is skipped, images per second by the number of GPUs with synthetic data, with real data)
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

# HPCDIY: a vendor's workstations and servers with GeForce and Quadro cards
_RTX_2080_TI = Cluster("2080 Ti", "rtx-2080-ti", "dual-socket", 10, "")
_RTX_8000 = Cluster("RTX 8000", "quadro-rtx-8000", "dual-socket", 4, "")
_RTX_3090 = Cluster("3090", "rtx-3090", "dual-socket", 8, "")
_RTX_4090 = Cluster("4090", "rtx-4090", "dual-socket", 8, "")
# (machines, model, images per GPU) → images per second by the number of GPUs, all in fp16
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

# PyTorch's own DDP benchmark: images per second of each GPU, by their number; one GPU runs without DDP
_PYTORCH: dict[str, Rates] = {
    "resnet50": {1: 329, 2: 310, 4: 310, 8: 307, 16: 306},
    "resnet101": {1: 197, 2: 182, 4: 182, 8: 179, 16: 178},
}

# Figures that users of Amazon's p3 machines reported in questions
_P3_16 = Cluster("p3.16xlarge", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "tcp 25 1 10")
_USERS = (
    Series(
        _P3_16, "User of deep-learning-models", "horovod", "horovod", "Deep Learning AMI", "resnet50", 256,
        {1: 740, 2: 1481.3, 8: 5000, 16: 9860, 32: 21300, 64: 37000}, "fp16",
    ),
    Series(
        _P3_16, "User of Horovod", "horovod", "horovod", "Kubernetes", "resnet50", 64,
        {4: 1399.38, 8: 2697.29, 16: 2632.95, 32: 4772.04, 64: 9745.38},
    ),
    Series(
        _P3_16, "User of Gluon", "mxnet-kvstore", "distributed-replicated", "p3.8xlarge", "vgg16", 32,
        {1: 214.5, 2: 405.5, 4: 817.5},
    ),
)  # fmt: skip

# Ray: ResNet-50 with DDP and Horovod on Amazon's machines; Ray ran NCCL 2.4.8 without containers: 16 flows
_RAY_P3 = Cluster("p3", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "tcp 25 1 10 16")
_P3DN = Cluster("p3dn", "v100-sxm2-32gb", "nvlink-hybrid-cube-mesh", 8, "tcp 100 1 10 16")
# (machines, library, program, precision, bits per gradient, images per second by the number of GPUs)
_RAY: tuple[tuple[Cluster, str, str, str, int, Rates], ...] = (
    (_P3DN, "DDP", "one machine", "fp32", 32, {1: 356, 2: 701, 4: 1401, 8: 2795}),
    (_P3DN, "DDP", "one machine apex O1", "fp16", 32, {1: 770, 2: 1346, 4: 2695, 8: 5862}),
    (_P3DN, "DDP", "machines", "fp32", 32, {8: 2962.7, 16: 5886.1, 32: 11705.9, 64: 23317.9}),
    (_P3DN, "DDP", "machines apex O1", "fp16", 32, {8: 6172, 16: 10052.8, 32: 20319.5, 64: 38642}),
    (_P3DN, "Horovod", "machines", "fp32", 32, {8: 2769.7, 16: 5492.2, 32: 10733.4, 64: 21872.5}),
    (_P3DN, "Horovod", "machines apex O1", "fp16", 32, {8: 5143, 16: 9463, 32: 18807, 64: 36911.8}),
    (_RAY_P3, "DDP", "machines", "fp32", 32, {8: 2863.6, 16: 5640.2, 32: 11014.8, 64: 22273.6}),
    (_RAY_P3, "DDP", "machines apex O1", "fp16", 32, {8: 6171.5, 16: 8414.1, 32: 16346.8, 64: 33148.2}),
    (_RAY_P3, "Horovod", "machines", "fp32", 32, {8: 2273.4, 16: 4210.5, 32: 6633.3, 64: 12414.6}),
    (_RAY_P3, "Horovod", "machines compressed", "fp32", 16, {8: 2552.3, 16: 4974.2, 32: 9544.4, 64: 18479.8}),
)  # fmt: skip

# Paik: one machine
_PAIK_V100 = Cluster("V100", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "")
_PAIK_A100 = Cluster("A100", "a100-sxm4-80gb", "nvswitch", 8, "")
# (machines, model, images per GPU) → images per second by the number of GPUs, all in fp16
_PAIK: dict[tuple[Cluster, str, int], Rates] = {
    (_PAIK_V100, "resnet152", 128): {1: 503.214, 2: 962.437, 4: 1927.68, 8: 3841.11},
    (_PAIK_V100, "vit-b-16", 128): {1: 381.160, 2: 735.578, 4: 1471.01, 8: 2925.45},
    (_PAIK_A100, "resnet152", 512): {1: 1189.53, 2: 2353.18, 4: 4669.36, 8: 9273.29},
    (_PAIK_A100, "vit-b-16", 1024): {1: 1029.88, 2: 2037.24, 4: 4061.99, 8: 8071.35},
}

# FlagPerf
_FLAGPERF_A100 = Cluster("DGX A100", "a100-sxm4-40gb", "nvswitch", 8, "rdma 200 2")
_FRAMES = 566.0  # spectrogram frames per LJSpeech utterance, as in Lambda's table
_UNCLEAR_BATCH = "its batch is not clear: it took more memory than that of the other rows"
# (model, batch per GPU, precision, published units per sample, why it is skipped, units per second by the number of GPUs)
_FLAGPERF: tuple[tuple[str, int, str, float, str, Rates], ...] = (
    ("resnet50", 256, "tf32", 1.0, "", {1: 799, 8: 6105, 16: 11874}),
    ("mask-rcnn", 16, "tf32", 1.0, "", {1: 25.2, 8: 179.1, 16: 334.8}),
    ("tacotron2", 128, "tf32", _FRAMES, "", {1: 35562, 8: 280476, 16: 558171}),
    ("vit-b-16", 256, "fp16", 1.0, "", {1: 1151, 16: 10535}),
    ("vit-b-16", 256, "fp16", 1.0, _UNCLEAR_BATCH, {8: 5441}),
)

# EKS and Liaw: Horovod on p3
_P3 = Cluster("p3", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "tcp 25 1 10")
# ResNet-50 in fp16 with 256 images per GPU: images per second by the number of GPUs
_EKS: dict[str, Rates] = {
    "synthetic": {1: 872, 8: 6679, 16: 12828, 32: 23870, 64: 47195, 128: 89783},
    "Lustre": {8: 6001.19, 16: 11090.10, 32: 18695.00},
}
_LIAW: Rates = {4: 792.41, 8: 1523, 16: 1529, 32: 2958, 64: 5806, 128: 11384}

# Kempner Institute
_KEMPNER_A100 = Cluster("Kempner", "a100-sxm4-40gb", "full-mesh", 4, "")
_IMAGES = 90 * 1_281_167  # all epochs of ImageNet
_KEMPNER_SECONDS = {1: 129686, 2: 65752, 4: 33216, 8: 17104, 16: 8914, 32: 4765, 64: 2640}
_UNKNOWN_INFINIBAND = "the rate of the InfiniBand between the machines is not stated"

# Baskerville
_SAMPLES = 2216 * 16  # per epoch: the steps of one GPU times its batch
# GPUs used per machine → seconds of the second epoch by the number of GPUs
_BASKERVILLE_SECONDS = {
    4: {1: 498.37, 2: 266.83, 4: 135.42},
    2: {4: 895.85},
    1: {2: 406.12, 4: 251.68},
}

# MareNostrum 5
_MARENOSTRUM = Cluster("MareNostrum 5", "h100-sxm5-80gb", "full-mesh", 4, "rdma 200 4", "tf32")
_FEW_STEPS = "three steps an epoch: starting to read its images is most of it"
# (images, why it is skipped) → images per second by the number of GPUs
_MARENOSTRUM_VIT: dict[tuple[str, str], Rates] = {
    ("micro-224", ""): {1: 240, 2: 464, 4: 892, 8: 1668, 16: 3075},
    ("micro-224", _FEW_STEPS): {32: 5205},
    ("tiny-224", ""): {1: 242, 2: 475, 4: 935, 8: 1817, 16: 3597, 32: 6914},
}
_CIFAR_IMAGES = 50_000
# (model, images per GPU) → steps of the second epoch and seconds per step, by the number of GPUs
_MARENOSTRUM_CIFAR: dict[tuple[str, int], dict[int, tuple[int, float]]] = {
    ("resnet50-v2-cifar", 2048): {1: (25, 0.544), 2: (13, 0.623), 4: (7, 0.768)},
    ("resnet152-v2-cifar", 1024): {1: (49, 0.668), 2: (25, 0.718), 4: (13, 0.773)},
}

# HAL
_HAL = Cluster("HAL", "v100-sxm2-16gb", "nvlink-pairs", 4, "rdma 100 1")
# images per GPU → images per second by the number of GPUs
_HAL_RATES: dict[int, Rates] = {
    208: {2: 1582.36, 4: 3010.60, 8: 5797.62, 16: 11257.31, 32: 19610.92, 64: 32619.35},
    256: {8: 5722.54, 16: 10752.21, 32: 20698.19, 64: 37482.92},
}

# NERSC
_CORI = Cluster("Cori", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "rdma 100 4")
# model → images per second by the number of GPUs
_NERSC: dict[str, Rates] = {
    "inception-v3": {
        1: 194.450, 2: 379.390, 4: 739.752, 8: 1409.969, 16: 2800.638, 32: 5590.436, 64: 11142.295,
    },
    "alexnet": {
        1: 815.521, 2: 1572.783, 4: 3061.989, 8: 5683.290, 16: 10705.650, 32: 11829.027, 64: 23131.752,
    },
    "resnet50": {
        1: 273.583, 2: 522.775, 4: 1050.886, 8: 2007.927, 16: 3994.577, 32: 7960.547, 64: 15826.749,
    },
}  # fmt: skip

# Moyix: two RTX 3090 with and without NVLink
_BRIDGED = Cluster("2 × 3090", "rtx-3090", "nvlink-pairs", 2, "", "tf32")
_UNKNOWN_SLOTS = "what joins the GPUs without NVLink is not stated"
_MOYIX_SAMPLES = 400 * 4  # per run: the steps of one GPU times its batch
# (model, tokens per sample) → seconds with one GPU, two GPUs with NVLink, and two without
_MOYIX: dict[tuple[str, int], tuple[float, float, float]] = {
    ("gpt2", 128): (19.5621, 13.5368, 30.0181),
    ("gpt2", 256): (30.423, 18.6943, 35.4208),
    ("gpt2", 512): (58.0856, 32.3616, 49.1999),
    ("gpt2-medium", 128): (49.3823, 33.4365, 74.9924),
    ("gpt2-medium", 256): (79.6724, 47.7543, 89.3616),
    ("gpt2-medium", 512): (152.6255, 82.1935, 124.1163),
    ("gpt2-large", 128): (98.5939, 65.7918, 152.2178),
}

# Rossum
_M60 = Cluster("4 × M60", "m60", "dual-root", 4, "")
_ROSSUM: Rates = {1: 44.92, 2: 91.44, 3: 127.33, 4: 173.5}

_TABLES: dict[str, list[Series]] = {
    "csc": [*_list_csc_series()],
    "azure": [*_list_azure_series()],
    "mxnet": [
        Series(
            _P2, "MXNet p2.16xlarge", "mxnet-kvstore", "distributed-replicated", "MXNet dist_device_sync",
            model, batch, rates,
        )
        for (model, batch), rates in _MXNET.items()
    ],
    "mlperf_logs": [*_list_mlperf_series()],
    "cscs": [
        Series(
            machines, f"CSCS {machines.name}", "tf-cnn-benchmarks", strategy, f"{machines.name} {data}",
            "inception-v3", 64, rates, skip=skip,
        )
        for machines, strategy, skip, synthetic, real in _CSCS
        for data, rates in (("synthetic", synthetic), ("real", real))
    ],
    "hpcdiy": [
        Series(
            machines, f"HPCDIY {machines.name}", "tf-cnn-benchmarks", "ddp", machines.name, model, batch,
            rates, "fp16", gradient_bits=16,
            peer=int(machines is _RTX_8000),  # Quadro cards reach each other's memory, GeForce cards don't
        )
        for (machines, model, batch), rates in _HPCDIY.items()
    ],
    "pytorch_ddp": [
        Series(
            _DGX_1, "PyTorch DDP benchmark", "pytorch-ddp", "ddp", "DGX-1", model, 32,
            {gpus: gpus * rate for gpus, rate in rate_per_gpu.items()},
        )
        for model, rate_per_gpu in _PYTORCH.items()
    ],
    "users": [*_USERS],
    "ray": [
        Series(
            machines, f"Ray {machines.name} {library}", "horovod" if library == "Horovod" else "pytorch-ddp",
            library.lower(), f"{machines.name} {library} {program}", "resnet50", 128, rates, precision,
            gradient_bits,
        )
        for machines, library, program, precision, gradient_bits, rates in _RAY
    ],
    "paik": [
        Series(
            machines, f"Paik {machines.name}", "pytorch-ddp", "ddp", f"{machines.name} weak", model, batch,
            rates, "fp16",
        )
        for (machines, model, batch), rates in _PAIK.items()
    ],
    "flagperf": [
        Series(
            _FLAGPERF_A100, "FlagPerf PyTorch", "pytorch-ddp", "ddp", "FlagPerf", model, batch,
            {gpus: round(rate / per_sample, 2) for gpus, rate in rates.items()}, precision, skip=skip,
        )
        for model, batch, precision, per_sample, skip, rates in _FLAGPERF
    ],
    "eks": [
        Series(_P3, "EKS Horovod", "horovod", "horovod", f"EKS {data}", "resnet50", 256, rates, "fp16")
        for data, rates in _EKS.items()
    ],
    "liaw": [Series(_P3, "Liaw Horovod", "horovod", "horovod", "Liaw", "resnet101", 64, _LIAW)],
    "kempner": [
        Series(
            _KEMPNER_A100, "Kempner DDP", "pytorch-ddp", "ddp", "Kempner", "resnet50", 256,
            {gpus: round(_IMAGES / seconds, 2)}, "tf32",
            skip=_UNKNOWN_INFINIBAND if gpus > _KEMPNER_A100.gpus_per_node else "",
        )
        for gpus, seconds in _KEMPNER_SECONDS.items()
    ],
    "baskerville": [
        Series(
            Cluster("Baskerville", "a100-sxm4-40gb", "full-mesh", gpus_per_node, "rdma 200 1"),
            "Baskerville Lightning", "pytorch-ddp", "ddp", "Baskerville", "gpt2-large-characters", 16,
            {gpus: round(_SAMPLES / seconds, 3) for gpus, seconds in epochs.items()}, "bf16",
        )
        for gpus_per_node, epochs in _BASKERVILLE_SECONDS.items()
    ],
    "marenostrum": [
        *(
            Series(
                _MARENOSTRUM, "MareNostrum DDP", "pytorch-ddp", "ddp", f"MareNostrum {images}", "vit-h-14",
                128, rates, "bf16", skip=skip,
            )
            for (images, skip), rates in _MARENOSTRUM_VIT.items()
        ),
        *(
            Series(
                _MARENOSTRUM, "MareNostrum TensorFlow", "tf-distribute", "ddp", "MareNostrum CIFAR-10",
                model, batch,
                {gpus: round(_CIFAR_IMAGES / (n * step), 1) for gpus, (n, step) in steps.items()},
                _MARENOSTRUM.fp32,
            )
            for (model, batch), steps in _MARENOSTRUM_CIFAR.items()
        ),
    ],
    "hal": [
        Series(
            _HAL, "HAL apex", "apex", "ddp-after-backward", f"HAL {batch}", "resnet50", batch, rates, "fp16",
            gradient_bits=16,
        )
        for batch, rates in _HAL_RATES.items()
    ],
    "nersc": [
        Series(_CORI, "NERSC DDP", "pytorch-ddp", "ddp", "Cori GPU", model, 128, rates)
        for model, rates in _NERSC.items()
    ],
    "moyix": [
        Series(
            _BRIDGED, "Moyix 3090", "pytorch-ddp", "ddp", f"Moyix {tokens} tokens", model, 4,
            {gpus: round(_MOYIX_SAMPLES / seconds, 3)}, _BRIDGED.fp32, peer=0 if skip else 1, skip=skip,
        )
        for (model, tokens), (alone, bridged, unbridged) in _MOYIX.items()
        for gpus, seconds, skip in ((1, alone, ""), (2, bridged, ""), (2, unbridged, _UNKNOWN_SLOTS))
    ],
    "rossum": [
        Series(
            _M60, "Rossum M60", "tf-cnn-benchmarks", "parameter-server", "Rossum M60", "inception-v3", 32,
            _ROSSUM, peer=0,
        )
    ],
}  # fmt: skip
