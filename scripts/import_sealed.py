"""Tables that were described and then put away: nobody has predicted them, so that the next fit can be judged by sources
that had no part in it and that no choice was made with. They came from searching for what no table here has. Copied by
hand; `import_published.py` writes them."""

from collections.abc import Iterator

from import_judges import Cluster, Rates, Series, rows_of
from import_stacks import Row

_P3 = Cluster("p3", "v100-sxm2-16gb", "nvlink-hybrid-cube-mesh", 8, "tcp 25 1 10")
_P3DN = Cluster("p3dn", "v100-sxm2-32gb", "nvlink-hybrid-cube-mesh", 8, "tcp 100 1 10")
# (machines, who exchanges, the program, precision, bits of a gradient) → images a second by the number of GPUs
_RAY: tuple[tuple[Cluster, str, str, str, int, Rates], ...] = (
    (_P3DN, "DDP", "one machine", "fp32", 32, {1: 356, 2: 701, 4: 1401, 8: 2795}),
    (_P3DN, "DDP", "one machine apex O1", "fp16", 32, {1: 770, 2: 1346, 4: 2695, 8: 5862}),
    (_P3DN, "DDP", "machines", "fp32", 32, {8: 2962.7, 16: 5886.1, 32: 11705.9, 64: 23317.9}),
    (_P3DN, "DDP", "machines apex O1", "fp16", 32, {8: 6172, 16: 10052.8, 32: 20319.5, 64: 38642}),
    (_P3DN, "Horovod", "machines", "fp32", 32, {8: 2769.7, 16: 5492.2, 32: 10733.4, 64: 21872.5}),
    (_P3DN, "Horovod", "machines apex O1", "fp16", 32, {8: 5143, 16: 9463, 32: 18807, 64: 36911.8}),
    (_P3, "DDP", "machines", "fp32", 32, {8: 2863.6, 16: 5640.2, 32: 11014.8, 64: 22273.6}),
    (_P3, "DDP", "machines apex O1", "fp16", 32, {8: 6171.5, 16: 8414.1, 32: 16346.8, 64: 33148.2}),
    (_P3, "Horovod", "machines", "fp32", 32, {8: 2273.4, 16: 4210.5, 32: 6633.3, 64: 12414.6}),
    (_P3, "Horovod", "machines compressed", "fp32", 16, {8: 2552.3, 16: 4974.2, 32: 9544.4, 64: 18479.8}),
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
