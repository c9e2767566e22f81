"""Tables that were read when everything was fitted, in the common columns: the benchmarks of CSC's two clusters,
Azure's of Horovod on three kinds of virtual machines, MXNet's on up to 256 K80s, and two rounds of MLPerf. Copied by
hand from the publishers' tables, charts and logs; `import_published.py` writes them. No constant, interval or stack is
fitted to them. Those that were read still later are in `import_strangers.py`."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from import_stacks import Row, without_wrong_bases

Rates = dict[int, float]


class Cluster(NamedTuple):
    """Machines of one kind and what joins them."""

    name: str
    gpu: str
    topology: str
    gpus_per_node: int
    network: str
    fp32: str = "fp32"  # what PyTorch's default of 32 bits is on these GPUs


class Series(NamedTuple):
    """What one program did on machines of one kind at one batch, in samples a second by the number of GPUs."""

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


def rows_of(series: Iterable[Series]) -> Iterator[Row]:
    yield from without_wrong_bases([row for one in series for row in _rows(one)])


def _rows(series: Series) -> Iterator[Row]:
    said = series._asdict()
    machines, name, rates = (said.pop(key) for key in ("machines", "name", "rates"))
    for gpus, rate in rates.items():
        yield _row(machines, gpus, series=name, samples_per_second=rate, **said)


_PUHTI = Cluster("Puhti", "v100-sxm2-32gb", "nvlink-hybrid-cube-mesh", 4, "rdma 100 2")
_MAHTI = Cluster("Mahti", "a100-sxm4-40gb", "full-mesh", 4, "rdma 200 1", "tf32")
_BATCH = 32
# (cluster, program and data, day) → images a second by the number of GPUs
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
_FRAMEWORKS = {"DDP": "pytorch-ddp", "Lightning": "pytorch-ddp", "Horovod": "horovod"}


def csc() -> Iterator[Row]:
    alone = {
        (cluster, program.removeprefix("DDP "), day): rates[1]
        for cluster, program, day, rates in _CSC
        if program.startswith("DDP")
    }
    yield from rows_of(_csc_series(*run, alone) for run in _CSC)


def _csc_series(
    cluster: Cluster,
    program: str,
    day: str,
    rates: Rates,
    alone: dict[tuple[Cluster, str, str], float],
) -> Series:
    software, said = program.split(maxsplit=1)
    horovod = software == "Horovod"
    return Series(
        cluster,
        f"CSC {cluster.name} {software}",
        _FRAMEWORKS[software],
        "horovod" if horovod else "ddp",
        f"{cluster.name} {program} {day}",
        "resnet50",
        _BATCH,
        # Horovod was run on 8 GPUs only; one GPU is the DDP program's of the same day and data
        {1: alone[cluster, said, day]} | rates if horovod else rates,
        "fp16" if "fp16" in program else cluster.fp32,
    )


class Chart(NamedTuple):
    """Bars of one chart: their heights in pixels by the number of GPUs, and what a pixel stands for."""

    machines: Cluster
    model: str
    images_per_pixel: float
    intel_mpi: Rates
    nccl: Rates


_K80 = Cluster("K80", "k80", "workstation", 4, "rdma 56 1")
_P100 = Cluster("P100", "p100-pcie-16gb", "workstation", 4, "rdma 56 1")
_V100 = Cluster("V100", "v100-pcie-16gb", "workstation", 4, "rdma 56 1")
# grid lines are drawn at whole pixels, bars are not: what a pixel stands for is by the furthest line
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
_ETHERNET = "the rate of the Ethernet between the machines is not stated"


def azure() -> Iterator[Row]:
    yield from without_wrong_bases([row for chart in _AZURE for row in _azure_rows(chart)])


def _azure_rows(chart: Chart) -> Iterator[Row]:
    machines = chart.machines
    for library, heights in (("Intel MPI", chart.intel_mpi), ("NCCL", chart.nccl)):
        for gpus, pixels in heights.items():
            ethernet = library == "NCCL" and gpus > machines.gpus_per_node
            yield _row(
                machines,
                gpus,
                peer=0,
                source=f"Azure {library}",
                framework="horovod",
                series=f"{library} {machines.name}",
                model=chart.model,
                batch=64,
                precision="fp32",
                strategy="horovod",
                samples_per_second=round(pixels * chart.images_per_pixel, 1),
                skip=_ETHERNET if ethernet else "",
                **({"network": ""} if ethernet else {}),
            )


_P2 = Cluster("p2.16xlarge", "k80", "dual-root", 16, "tcp 20 1")
# (our model, images a GPU) → images a second by the number of GPUs
_MXNET: dict[tuple[str, int], Rates] = {
    ("alexnet", 512): {1: 457.07, 2: 870.43, 4: 1514.8, 8: 2852.5, 16: 4244.18, 32: 7945.57, 64: 15840.52,
                       128: 31334.88, 256: 61938.36},
    ("inception-v3", 32): {1: 30.4, 2: 59.61, 4: 117.9, 8: 233.39, 16: 447.61, 32: 882.57, 64: 1761.24,
                           128: 3416.2, 256: 6660.98},
    ("resnet152", 32): {1: 20.8, 2: 38.76, 4: 77.01, 8: 153.07, 16: 298.03, 32: 595.53, 64: 1179.86,
                        128: 2333.47, 256: 4630.42},
}  # fmt: skip


def mxnet() -> Iterator[Row]:
    yield from rows_of(
        Series(
            _P2,
            "MXNet p2.16xlarge",
            "mxnet-kvstore",
            "distributed-replicated",
            "MXNet dist_device_sync",
            model,
            batch,
            rates,
        )
        for (model, batch), rates in _MXNET.items()
    )


_DGX_1 = Cluster("DGX-1", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "rdma 100 4")
_DGX_2H = Cluster("DGX-2H", "v100-sxm3-32gb", "nvswitch", 16, "rdma 100 8")
_DGX_A100 = Cluster("DGX A100", "a100-sxm4-80gb", "nvswitch", 8, "rdma 200 8")
_ND96 = Cluster("ND96amsr", "a100-sxm4-80gb", "nvswitch", 8, "rdma 200 8")
_R750XA = Cluster("R750xa", "a100-pcie-80gb", "workstation", 4, "rdma 100 1")
_UNSTEADY = "single epochs of the log differ threefold"
# (round and submitter, machines, our model) → (GPUs, samples a GPU, samples a second, why it is left out)
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


def mlperf_logs() -> Iterator[Row]:
    for submission, machines, model, figures in _MLPERF_LOGS:
        for gpus, batch, rate, skip in figures:
            bert = model == "bert-large"
            yield _row(
                machines,
                gpus,
                source=f"MLPerf {submission}",
                framework="apex" if bert else "horovod",
                series=f"{submission} {machines.name}",
                model=model,
                batch=batch,
                precision="fp16",
                gradient_bits=16,
                strategy="ddp-after-backward" if bert else "horovod",
                samples_per_second=rate,
                skip=skip,
            )


def _row(machines: Cluster, gpus: int, **said: object) -> Row:
    nodes = -(-gpus // machines.gpus_per_node)
    return {
        "model": "resnet50",
        "gpu": machines.gpu,
        "topology": machines.topology,
        "peer": 1,
        "nodes": nodes,
        "gpus": gpus,
        "gradient_bits": 32,
        "network": machines.network if nodes > 1 else "",
        "skip": "",
        **said,
    }
