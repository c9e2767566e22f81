"""The templates of first spec files, and the values that fill them: flags of `gpuyard init`, and its questions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Value:
    """A value of a template: its flag is `--name`, and the wizard asks the question."""

    name: str
    question: str
    default: str
    placeholder: str = "N"


_NAME = "Name for answers and tables"
_GPU = Value("gpu", "Catalog GPU", "rtx-4090", "ID")
_NODES = Value("nodes", "Number of machines", "2")
_GPUS_PER_NODE = Value("gpus-per-node", "GPUs in each machine", "4")
_RUN = (
    Value("model", "Catalog model, or importable code as module:factory", "resnet50", "WORKLOAD"),
    Value("samples", "Samples of one epoch", "1281167"),
    Value("epochs", "Epochs of one run", "90"),
)
IMAGE_MODELS = ("alexnet", "vgg", "resnet", "inception", "vit")
"""The first words of models that are assumed to train on ImageNet."""
IMAGENET_BYTES_PER_SAMPLE = 115_000  # as in MLPerf Training
VALUES: Mapping[str, tuple[Value, ...]] = {
    "workload": (
        Value("name", _NAME, "my-model", "NAME"),
        *_RUN,
        Value("batch", "Samples per GPU and step", "32"),
        Value("gpus", "Number of GPUs to try it on", "8"),
        replace(_GPU, question="Catalog GPU to try it on", default="h100-sxm5-80gb"),
    ),
    "cluster": (
        Value("name", _NAME, "my-cluster", "NAME"),
        _NODES,
        _GPU,
        _GPUS_PER_NODE,
        Value("rate", "Rate of the network between machines", "25 Gbit/s", "RATE"),
    ),
    "plan": (
        Value("name", _NAME, "my-plan", "NAME"),
        *_RUN,
        Value("researchers", "People who train models", "6"),
        Value("runs-per-month", "Training runs per month", "24", "NUMBER"),
        Value("budget", "Total over three years", "$60000", "PRICE"),
    ),
    "site": (
        Value("name", _NAME, "my-room", "NAME"),
        Value("place", "Kind of place: office, room, or colocation", "room", "NAME"),
        Value("country", "Two-letter country code", "DE", "CODE"),
        Value("voltage", "Voltage of a circuit", "400 V", "VOLTAGE"),
        Value("amps", "Rating of its breaker", "32 A", "CURRENT"),
        Value("phases", "Number of phases, 1 or 3", "3"),
        Value(
            "receptacle",
            "Receptacle, as listed by gpuyard catalog plugs",
            "iec-60309-32a-3p-n-e-6h",
            "ID",
        ),
    ),
    "job": (
        Value("name", _NAME, "my-job", "NAME"),
        Value("command", "Command to run", "torchrun train.py", "COMMAND"),
        Value("gpus", "Number of GPUs, or a range", "2..8", "N|N..M"),
    ),
    "deployment": (
        Value("name", _NAME, "pair", "NAME"),
        _NODES,
        replace(_GPU, default="t4"),
        replace(_GPUS_PER_NODE, default="2"),
        Value("rate", "Rate of the network between machines", "1 Gbit/s", "RATE"),
    ),
}
"""The values of each kind of file."""
TEMPLATES = {
    "workload": """\
# What is trained. Try it: gpuyard predict {file} --on {gpus}x{gpu}
name: {name}
model: {model}
{sample}batch_per_gpu: {batch}
dataset: {{samples: {samples}}}   # also bytes_per_sample, if samples are read from storage
epochs: {epochs}
# precision: bf16               # fp32, tf32, fp16, or bf16; default: PyTorch's
# measured:                     # a figure that you know narrows every prediction
#   - {{gpu: {gpu}, batch_per_gpu: {batch}, samples_per_second: 500}}
""",
    "large workload": """\
# What is trained. Try it: gpuyard predict {file} --on {gpus}x{gpu}
name: {name}
model: {model}
tokens: 20B                     # of the whole training
# parallel:                     # how the model is divided among GPUs; default: the fastest way
#   global_batch: 256
#   sequence: 4096
""",
    "cluster": """\
# The machines and the network between them. Try it: gpuyard predict resnet50 --on {file}
name: {name}
nodes: {nodes}
machine: {{gpu: {gpu}, gpus: {gpus_per_node}}}   # or a catalog machine: dgx-h100
network: {{rate: {rate}}}            # or {{link: infiniband-ndr, rails: 8}}
# storage: {{read: 10 GB/s}}            # all nodes together; default: no limit
""",
    "plan": """\
# The goal of a plan. Try it: gpuyard plan {file}
name: {name}
workload:
  name: {name}
  model: {model}
{run}
runs_per_month: {runs_per_month}
budget: {budget}                # total over the horizon
horizon: 3 years
people: {{researchers: {researchers}}}
# time_per_run: 12 h            # longest time of a run
# policy: {{data_stays: true}}    # nothing is rented or colocated
# site: {{power: 20 kW, country: DE}}
""",
    "site": """\
# The room for bought machines. Try it: gpuyard facility 2x8xrtx-4090@25G --site {file}
name: {name}
kind: {place}                      # office, room, or colocation
country: {country}                     # for the price of electricity
circuits:                       # gpuyard catalog plugs lists receptacles
  - {{voltage: {voltage}, amps: {amps}, phases: {phases}, receptacle: {receptacle}}}
# rack: {{power: 20 kW, count: 4}}
""",
    "job": """\
# A command that needs GPUs. Try it: gpuyard submit {file} --engine slurm --dry-run
name: {name}
command: {command}
gpus: {gpus}
# workload: resnet50            # its scaling curve shows the benefit of another GPU
# deadline: Fri 18:00
# checkpoint: {{directory: checkpoints, time: 30 s}}
# retries: 3                    # after a lost machine
""",
    "deployment": """\
# Machines that gpuyard builds. Try it: gpuyard deploy plan {file}
name: {name}
cluster:
  name: {name}
  nodes: {nodes}
  machine: {{gpu: {gpu}, gpus: {gpus_per_node}}}
  network: {{rate: {rate}}}
target: {{kind: lab}}             # emulated on this host; or ssh, aws, gcp, openstack, …
head: [base, shared-storage, training]
workers: [base, shared-storage, training]
shared: /shared
""",
}
SAMPLE_OF_CODE = """\
input: {shape: [3, 224, 224]}  # one sample, without the batch; tokens: {shape: [256], below: 50257}
target: {classes: 1000}        # or {shape: [...]}, or next-token
"""
