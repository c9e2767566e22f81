"""The names that options and spec keys accept. `--help`, shell completion, and errors list them.

They are apart from the packages that they belong to, because importing those would slow down the help. Names that a
package derives from its parts, like the policies, are repeated here; a test compares both.
"""

from enum import StrEnum
from typing import Literal

Backend = Literal["gloo", "nccl", "mpi"]
BaseImage = Literal["debian", "ubuntu", "cuda"]
Collective = Literal["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"]
CommandVisibility = Literal["own", "all"]
Dataset = Literal["spoken-digits"]
ExportFormat = Literal["json", "csv", "mlflow", "wandb", "prometheus"]
FairShareOwner = Literal["user", "group"]
Increment = Literal["hour", "minute", "second", "1/100 h"]
Launcher = Literal["torchrun", "direct"]
Load = Literal["steady", "working-hours", "spiky"]
MeasuredStrategy = Literal["ddp", "dataparallel", "horovod", "fsdp", "tensor", "pipeline"]
PolicyName = Literal[
    "fifo",
    "shortest-first",
    "fair-share",
    "min-time",
    "max-jobs",
    "explore-then-focus",
    "tiresias",
    "optimus",
]
Precision = Literal["fp32", "tf32", "fp16", "bf16"]
LargePrecision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
PredictedStrategy = Literal[
    "ddp", "dataparallel", "horovod", "parameter-server", "fsdp", "megatron", "auto"
]
ResultKind = Literal[
    "train",
    "job",
    "links",
    "collectives",
    "relief",
    "storage",
    "convergence",
    "acceptance",
    "rejected",
]
SpecName = Literal[
    "workload", "cluster", "study", "plan", "offers", "site", "sweep", "job", "deployment"
]
Topology = Literal[
    "workstation",
    "dual-socket",
    "dual-root",
    "single-root",
    "cascaded",
    "nvlink-hybrid-cube-mesh",
    "nvlink-pairs",
    "nvswitch",
    "full-mesh",
    "torus",
    "consumer",
]
ViolationAction = Literal["none", "warn", "stop"]


class Framework(StrEnum):
    """The frameworks that gpuyard installs; an enumeration, because typer knows no list of literals."""

    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    MXNET = "mxnet"
