"""Write first spec files with comments, and copy the examples that are shipped with gpuyard."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuyard.catalog.specfiles import known_names
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.files import write_text
from gpuyard.specs.loading import parse_spec
from gpuyard.specs.schema import SPECS


@dataclass(frozen=True)
class Question:
    """A value of a template: its flag is `--name`, and the wizard asks the question."""

    name: str
    question: str
    default: str


_NAME = "a name for answers and tables"
QUESTIONS: Mapping[str, tuple[Question, ...]] = {
    "workload": (
        Question("name", _NAME, "my-model"),
        Question("model", "a catalog model, or importable code as module:factory", "resnet50"),
        Question("batch", "samples per GPU and step", "32"),
        Question("samples", "samples of one epoch", "1281167"),
        Question("epochs", "epochs of one run", "90"),
    ),
    "cluster": (
        Question("name", _NAME, "my-cluster"),
        Question("nodes", "number of machines", "2"),
        Question("gpu", "catalog GPU, as listed by gpuyard catalog gpus", "rtx-4090"),
        Question("gpus", "GPUs in each machine", "4"),
        Question("network", "rate of the network between machines", "25 Gbit/s"),
    ),
    "plan": (
        Question("name", _NAME, "my-plan"),
        Question("model", "a catalog model", "resnet50"),
        Question("samples", "samples of one epoch", "1281167"),
        Question("epochs", "epochs of one run", "90"),
        Question("researchers", "people who train models", "6"),
        Question("runs", "training runs per month", "24"),
        Question("budget", "total over three years", "$60000"),
    ),
    "site": (
        Question("name", _NAME, "my-room"),
        Question("kind", "office, room, or colocation", "room"),
        Question("country", "two-letter country code", "DE"),
        Question("voltage", "voltage of a circuit", "400 V"),
        Question("amps", "rating of its breaker", "32 A"),
        Question("phases", "phases, 1 or 3", "3"),
        Question(
            "receptacle",
            "receptacle, as listed by gpuyard catalog plugs",
            "iec-60309-32a-3p-n-e-6h",
        ),
    ),
    "job": (
        Question("name", _NAME, "my-job"),
        Question("command", "command to run", "torchrun train.py"),
        Question("gpus", "number of GPUs, or a range", "2..8"),
    ),
    "deployment": (
        Question("name", _NAME, "pair"),
        Question("nodes", "number of machines", "2"),
        Question("gpu", "catalog GPU", "t4"),
        Question("gpus", "GPUs in each machine", "2"),
    ),
}
_TEMPLATES = {
    "workload": """\
# What is trained. Try it: gpuyard predict {file} --on 8xh100
name: {name}
model: {model}
{sample}batch_per_gpu: {batch}
dataset: {{samples: {samples}}}   # also bytes_per_sample, if samples are read from storage
epochs: {epochs}
# precision: bf16               # fp32, tf32, fp16, or bf16; default: PyTorch's
# measured:                     # a figure that you know narrows every prediction
#   - {{gpu: rtx-4090, batch_per_gpu: {batch}, samples_per_second: 500}}
""",
    "cluster": """\
# The machines and the network between them. Try it: gpuyard predict resnet50 --on {file}
name: {name}
nodes: {nodes}
machine: {{gpu: {gpu}, gpus: {gpus}}}   # or a catalog machine: dgx-h100
network: {{rate: {network}}}            # or {{link: infiniband-ndr, rails: 8}}
# storage: {{read: 10 GB/s}}            # all nodes together; default: no limit
""",
    "plan": """\
# The goal of a plan. Try it: gpuyard plan {file}
name: {name}
workload:
  name: {name}
  model: {model}
  dataset: {{samples: {samples}}}
  epochs: {epochs}
runs_per_month: {runs}
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
kind: {kind}                      # office, room, or colocation
country: {country}                     # for the price of electricity
circuits:                       # gpuyard catalog plugs lists receptacles
  - {{voltage: {voltage}, amps: {amps}, phases: {phases}, receptacle: {receptacle}}}
# rack: {{power: 20 kW, count: 4}}
""",
    "job": """\
# A command that needs GPUs. Try it: gpuyard submit {file} --dry-run
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
  machine: {{gpu: {gpu}, gpus: {gpus}}}
  network: {{rate: 1 Gbit/s}}
target: {{kind: lab}}             # emulated on this host; or ssh, aws, gcp, openstack, …
head: [base, shared-storage, training]
workers: [base, shared-storage, training]
shared: /shared
""",
}
_SAMPLE_OF_CODE = """\
input: {shape: [3, 224, 224]}  # one sample, without the batch; tokens: {shape: [256], below: 50257}
target: {classes: 1000}        # or {shape: [...]}, or next-token
"""


def create_spec(kind: str, values: Mapping[str, str], file: Path | None = None) -> Path:
    """Write a spec file of this kind; values that are missing get their defaults. Return its path."""
    if kind not in QUESTIONS:
        raise UnknownName("kind of file", kind, QUESTIONS)
    questions = {question.name: question.default for question in QUESTIONS[kind]}
    for name in values:
        if name not in questions:
            raise UserMistake(f"a {kind} has no {name!r}; it has: {', '.join(questions)}")
    complete = questions | dict(values)
    path = file or Path(f"{complete['name']}.{kind}.yaml")
    sample = _SAMPLE_OF_CODE if ":" in complete.get("model", "") else ""
    text = _TEMPLATES[kind].format(file=path.name, sample=sample, **complete)
    parse_spec(text, path, SPECS[kind], known_names())
    _check_absent(path)
    write_text(path, text)
    return path


def _examples() -> Path:
    """Return the examples of the installed package, or those of a checkout."""
    package = Path(__file__).parent.parent
    shipped = package / "examples"
    return shipped if shipped.is_dir() else package.parent.parent / "examples"


def list_examples() -> list[str]:
    """List the example files."""
    return sorted(path.name for path in _examples().iterdir() if path.is_file())


def copy_example(name: str, directory: Path = Path()) -> list[Path]:
    """Copy an example and the files that it names; the part before the first dot suffices."""
    names = list_examples()
    chosen = [file for file in names if file == name] or [
        file for file in names if file.partition(".")[0] == name
    ]
    if not chosen:
        raise UnknownName("example", name, names)
    pending, copied = list(chosen), []
    while pending:
        file = pending.pop()
        if file in copied:
            continue
        copied.append(file)
        text = (_examples() / file).read_text(encoding="utf-8")
        pending += [other for other in names if other in text and other not in copied]
    paths = [directory / file for file in sorted(copied)]
    for path in paths:
        _check_absent(path)
    for path in paths:
        text = (_examples() / path.name).read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if "yaml-language-server" not in line]
        write_text(path, "\n".join(lines) + "\n")
    return paths


def _check_absent(path: Path) -> None:
    if path.exists():
        raise UserMistake(f"{path} already exists; name another file, or remove it first")
