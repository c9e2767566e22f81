"""Tables that were described and then put away, so that a fit can be judged by sources that had no part in it and that
no choice was made with. They came from searching for what no table here has, and have judged since. Copied by hand;
`import_published.py` writes them."""

from collections.abc import Iterator

from import_judges import Cluster, Rates, Series, rows_of
from import_stacks import Row

_P3 = Cluster("p3", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "tcp 25 1 10")
# Ray ran NCCL 2.4.8 on the machines themselves: 16 flows
_RAY_P3 = Cluster("p3", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "tcp 25 1 10 16")
_P3DN = Cluster("p3dn", "v100-sxm2-32gb", "nvlink-hybrid-cube-mesh", 8, "tcp 100 1 10 16")
# (machines, who exchanges, the program, precision, bits of a gradient) → images a second by the number of GPUs
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


def ray() -> Iterator[Row]:
    yield from rows_of(
        Series(
            machines,
            f"Ray {machines.name} {exchanged}",
            "horovod" if exchanged == "Horovod" else "pytorch-ddp",
            exchanged.lower(),
            f"{machines.name} {exchanged} {program}",
            "resnet50",
            128,
            rates,
            precision,
            gradient_bits,
        )
        for machines, exchanged, program, precision, gradient_bits, rates in _RAY
    )


_PAIK_V100 = Cluster("V100", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "")
_PAIK_A100 = Cluster("A100", "a100-sxm4-80gb", "nvswitch", 8, "")
# (machines, our model, images a GPU) → images a second by the number of GPUs, all in fp16
_PAIK: dict[tuple[Cluster, str, int], Rates] = {
    (_PAIK_V100, "resnet152", 128): {1: 503.214, 2: 962.437, 4: 1927.68, 8: 3841.11},
    (_PAIK_V100, "vit-b-16", 128): {1: 381.160, 2: 735.578, 4: 1471.01, 8: 2925.45},
    (_PAIK_A100, "resnet152", 512): {1: 1189.53, 2: 2353.18, 4: 4669.36, 8: 9273.29},
    (_PAIK_A100, "vit-b-16", 1024): {1: 1029.88, 2: 2037.24, 4: 4061.99, 8: 8071.35},
}


def paik() -> Iterator[Row]:
    yield from rows_of(
        Series(
            machines,
            f"Paik {machines.name}",
            "pytorch-ddp",
            "ddp",
            f"{machines.name} weak",
            model,
            batch,
            rates,
            "fp16",
        )
        for (machines, model, batch), rates in _PAIK.items()
    )


_FLAGPERF_A100 = Cluster("DGX A100", "a100-sxm4-40gb", "nvswitch", 8, "rdma 200 2")
_FRAMES = 566.0  # of the spectrogram of an utterance of LJSpeech, as in Lambda's table
_UNCLEAR_BATCH = "its batch is not clear: it took more memory than that of the other rows"


def flagperf() -> Iterator[Row]:
    yield from rows_of(
        Series(
            _FLAGPERF_A100,
            "FlagPerf PyTorch",
            "pytorch-ddp",
            "ddp",
            "FlagPerf",
            model,
            batch,
            {gpus: round(rate / per_sample, 2) for gpus, rate in rates.items()},
            precision,
            skip=skip,
        )
        for model, batch, precision, per_sample, skip, rates in (
            ("resnet50", 256, "tf32", 1.0, "", {1: 799, 8: 6105, 16: 11874}),
            ("mask-rcnn", 16, "tf32", 1.0, "", {1: 25.2, 8: 179.1, 16: 334.8}),
            ("tacotron2", 128, "tf32", _FRAMES, "", {1: 35562, 8: 280476, 16: 558171}),
            ("vit-b-16", 256, "fp16", 1.0, "", {1: 1151, 16: 10535}),
            ("vit-b-16", 256, "fp16", 1.0, _UNCLEAR_BATCH, {8: 5441}),
        )
    )


# ResNet-50 in fp16, 256 images a GPU → images a second by the number of GPUs
_EKS: dict[str, Rates] = {
    "synthetic": {1: 872, 8: 6679, 16: 12828, 32: 23870, 64: 47195, 128: 89783},
    "Lustre": {8: 6001.19, 16: 11090.10, 32: 18695.00},
}


def eks() -> Iterator[Row]:
    yield from rows_of(
        Series(
            _P3, "EKS Horovod", "horovod", "horovod", f"EKS {data}", "resnet50", 256, rates, "fp16"
        )
        for data, rates in _EKS.items()
    )


_LIAW: Rates = {4: 792.41, 8: 1523, 16: 1529, 32: 2958, 64: 5806, 128: 11384}


def liaw() -> Iterator[Row]:
    yield from rows_of(
        [Series(_P3, "Liaw Horovod", "horovod", "horovod", "Liaw", "resnet101", 64, _LIAW)]
    )


_KEMPNER_A100 = Cluster("Kempner", "a100-sxm4-40gb", "full-mesh", 4, "")
_IMAGES = 90 * 1_281_167  # of ImageNet, in all epochs
_KEMPNER_SECONDS = {1: 129686, 2: 65752, 4: 33216, 8: 17104, 16: 8914, 32: 4765, 64: 2640}
_UNKNOWN_INFINIBAND = "the rate of the InfiniBand between the machines is not stated"


def kempner() -> Iterator[Row]:
    yield from rows_of(
        Series(
            _KEMPNER_A100,
            "Kempner DDP",
            "pytorch-ddp",
            "ddp",
            "Kempner",
            "resnet50",
            256,
            {gpus: round(_IMAGES / seconds, 2)},
            "tf32",
            skip=_UNKNOWN_INFINIBAND if gpus > _KEMPNER_A100.gpus_per_node else "",
        )
        for gpus, seconds in _KEMPNER_SECONDS.items()
    )


_SAMPLES = 2216 * 16  # of an epoch: the steps of one GPU, with its batch
# GPUs used of each machine → seconds of the second epoch by the number of GPUs
_BASKERVILLE_SECONDS = {
    4: {1: 498.37, 2: 266.83, 4: 135.42},
    2: {4: 895.85},
    1: {2: 406.12, 4: 251.68},
}


def baskerville() -> Iterator[Row]:
    yield from rows_of(
        Series(
            Cluster("Baskerville", "a100-sxm4-40gb", "full-mesh", used, "rdma 200 1"),
            "Baskerville Lightning",
            "pytorch-ddp",
            "ddp",
            "Baskerville",
            "gpt2-large-characters",
            16,
            {gpus: round(_SAMPLES / taken, 3) for gpus, taken in seconds.items()},
            "bf16",
        )
        for used, seconds in _BASKERVILLE_SECONDS.items()
    )


_MARENOSTRUM = Cluster("MareNostrum 5", "h100-sxm5-80gb", "full-mesh", 4, "rdma 200 4", "tf32")
_FEW_STEPS = "three steps an epoch: starting to read its images is most of it"
# (images, why it is left out) → images a second by the number of GPUs
_MARENOSTRUM_VIT: dict[tuple[str, str], Rates] = {
    ("micro-224", ""): {1: 240, 2: 464, 4: 892, 8: 1668, 16: 3075},
    ("micro-224", _FEW_STEPS): {32: 5205},
    ("tiny-224", ""): {1: 242, 2: 475, 4: 935, 8: 1817, 16: 3597, 32: 6914},
}
_CIFAR_IMAGES = 50_000
# (our model, images a GPU) → steps of the second epoch, and their seconds, by the number of GPUs
_MARENOSTRUM_CIFAR: dict[tuple[str, int], dict[int, tuple[int, float]]] = {
    ("resnet50-v2-cifar", 2048): {1: (25, 0.544), 2: (13, 0.623), 4: (7, 0.768)},
    ("resnet152-v2-cifar", 1024): {1: (49, 0.668), 2: (25, 0.718), 4: (13, 0.773)},
}


def marenostrum() -> Iterator[Row]:
    vit = [
        Series(
            _MARENOSTRUM,
            "MareNostrum DDP",
            "pytorch-ddp",
            "ddp",
            f"MareNostrum {images}",
            "vit-h-14",
            128,
            rates,
            "bf16",
            skip=skip,
        )
        for (images, skip), rates in _MARENOSTRUM_VIT.items()
    ]
    cifar = [
        Series(
            _MARENOSTRUM,
            "MareNostrum TensorFlow",
            "tf-distribute",
            "ddp",
            "MareNostrum CIFAR-10",
            model,
            batch,
            {gpus: round(_CIFAR_IMAGES / (n * step), 1) for gpus, (n, step) in steps.items()},
            _MARENOSTRUM.fp32,
        )
        for (model, batch), steps in _MARENOSTRUM_CIFAR.items()
    ]
    yield from rows_of([*vit, *cifar])


_HAL = Cluster("HAL", "v100-sxm2-16gb", "nvlink-pairs", 4, "rdma 100 1")
# images a GPU → images a second by the number of GPUs
_HAL_RATES: dict[int, Rates] = {
    208: {2: 1582.36, 4: 3010.60, 8: 5797.62, 16: 11257.31, 32: 19610.92, 64: 32619.35},
    256: {8: 5722.54, 16: 10752.21, 32: 20698.19, 64: 37482.92},
}


def hal() -> Iterator[Row]:
    yield from rows_of(
        Series(
            _HAL,
            "HAL apex",
            "apex",
            "ddp-after-backward",
            f"HAL {batch}",
            "resnet50",
            batch,
            rates,
            "fp16",
            16,
        )
        for batch, rates in _HAL_RATES.items()
    )


_CORI = Cluster("Cori", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "rdma 100 4")
# our model → images a second by the number of GPUs
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


def nersc() -> Iterator[Row]:
    yield from rows_of(
        Series(_CORI, "NERSC DDP", "pytorch-ddp", "ddp", "Cori GPU", model, 128, rates)
        for model, rates in _NERSC.items()
    )


_BRIDGED = Cluster("2 × 3090", "rtx-3090", "nvlink-pairs", 2, "", "tf32")
_UNKNOWN_SLOTS = "what joins the GPUs without NVLink is not stated"
_MOYIX_SAMPLES = 400 * 4  # of each run: the steps of one GPU, with its batch
# (our model, tokens of a sample) → seconds of one GPU, of two with NVLink, and of two without
_MOYIX: dict[tuple[str, int], tuple[float, float, float]] = {
    ("gpt2", 128): (19.5621, 13.5368, 30.0181),
    ("gpt2", 256): (30.423, 18.6943, 35.4208),
    ("gpt2", 512): (58.0856, 32.3616, 49.1999),
    ("gpt2-medium", 128): (49.3823, 33.4365, 74.9924),
    ("gpt2-medium", 256): (79.6724, 47.7543, 89.3616),
    ("gpt2-medium", 512): (152.6255, 82.1935, 124.1163),
    ("gpt2-large", 128): (98.5939, 65.7918, 152.2178),
}


def moyix() -> Iterator[Row]:
    yield from rows_of(
        Series(
            _BRIDGED,
            "Moyix 3090",
            "pytorch-ddp",
            "ddp",
            f"Moyix {tokens} tokens",
            model,
            4,
            {gpus: round(_MOYIX_SAMPLES / seconds, 3)},
            _BRIDGED.fp32,
            peer=0 if skip else 1,
            skip=skip,
        )
        for (model, tokens), (one, bridged, apart) in _MOYIX.items()
        for gpus, seconds, skip in ((1, one, ""), (2, bridged, ""), (2, apart, _UNKNOWN_SLOTS))
    )


_M60 = Cluster("4 × M60", "m60", "dual-root", 4, "")
_ROSSUM: Rates = {1: 44.92, 2: 91.44, 3: 127.33, 4: 173.5}


def rossum() -> Iterator[Row]:
    yield from rows_of(
        [
            Series(
                _M60,
                "Rossum M60",
                "tf-cnn-benchmarks",
                "parameter-server",
                "Rossum M60",
                "inception-v3",
                32,
                _ROSSUM,
                peer=0,
            )
        ]
    )
