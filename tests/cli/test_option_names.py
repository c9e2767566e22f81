"""An option has one meaning in all commands, and shows the values that it accepts."""

import inspect
from collections import defaultdict
from typing import Any, get_args

from gpuyard import choices
from gpuyard.cli.app import list_choices
from tests.cli.walk import every_command, get_parameters
from tests.conftest import Cli

MEANINGS = {
    "--all": "everything instead of some",
    "--batch": "samples per GPU or worker and step",
    "--budget": "money that may be spent",
    "--buy": "purchase price",
    "--bytes": "size of a message or copy",
    "--cpu-only": "for machines without a GPU",
    "--checkpoint-every": "training time between checkpoints",
    "--checkpoint-size": "size of a checkpoint",
    "--checkpoint-time": "time that a checkpoint takes",
    "--country": "place of the electricity price",
    "--dataset": "existing data to read",
    "--dry-run": "show what would be done, and do nothing",
    "--epochs": "passes over the training data",
    "--every": "time between repetitions",
    "--exclude": "files that are not copied",
    "--for": "duration",
    "--force": "do it although there is a reason not to",
    "--framework": "framework to install",
    "--fresh": "do it again instead of using a stored result",
    "--from": "source that is read: a file, directory, or address",
    "--gpu": "catalog GPU",
    "--gpu-memory": "memory on GPUs",
    "--gpus": "number of GPUs",
    "--gpus-per-node": "GPUs of one machine",
    "--horizon": "time that is planned for",
    "--html": "HTML page to write",
    "--images": "number of images",
    "--link": "rate of a network link",
    "--load": "shape of the demand over time",
    "--model": "workload file or catalog model",
    "--name": "name of the thing that the command is about",
    "--nodes": "number of machines",
    "--on": "cluster: a file, a catalog machine, or a short form",
    "--output": "file to write",
    "--output-dir": "directory to write to",
    "--precision": "number format of training",
    "--project": "project of leases",
    "--pue": "building power per watt of IT load",
    "--rate": "rate of a port or link",
    "--remove": "remove what the command wrote",
    "--rent": "rental price",
    "--repeats": "number of repeats",
    "--researchers": "people who train models",
    "--results": "results store",
    "--runs-per-month": "training runs per month",
    "--samples": "samples of an epoch",
    "--seed": "random seed",
    "--site": "site file",
    "--port": "port to listen on",
    "--since": "start of a period",
    "--slurm": "use Slurm's nodes",
    "--sort": "column to sort by",
    "--stop-after": "grace period before a violation is stopped",
    "--strategy": "strategy of gradient exchange",
    "--svg": "drawing to write",
    "--tariff": "electricity price",
    "--to": "destination of a copy",
    "--tokens": "tokens of a training run",
    "--until": "end of a period",
    "--usage": "output of gpuyard usage",
    "--user": "account of a person",
    "--why": "reasons of the answer",
    "--workers": "number of workers",
    "--workload": "workload file or catalog model",
    "--yes": "do not ask",
}
"""The one meaning of each option that several commands explain in their own words."""
COUNTS = {"N", "N,N,…", "N|N..M"}
SAME_PLACEHOLDER = {"FILE|none": "FILE", "NAME,…": "NAME", "SIZE,…": "SIZE", "RATE,…": "RATE"}
FREE_NAMES = {
    "--admin-group", "--docker-user", "--experiment", "--host-name", "--name", "--project", "--proxy-header", "--user",
}  # fmt: skip
"""Options for names that the user invents, or that only the machine knows."""
OPEN_PLACEHOLDERS = {
    "ADDRESS", "CHANGE", "CLUSTER", "COMMAND", "COUNT", "CURRENT", "DAY", "DIRECTORY", "ENV", "FILE", "FILE|none", "GB", "GROUP=H", "GROUP=N", "HANDLE", "HEX", "HOST,…",
    "HOW", "LAB", "LIST", "MACHINE", "MACHINESxGPUS,…", *COUNTS, "NAME=SIZE,…", "NAME=VALUE", "NODE=RATE", "NUMBER", "PATH",
    "PATTERN", "POWER", "PRICE", "RANGE", "RANK", "RATE", "RATE,…", "SHARE", "SIZE", "SIZE,…", "SOURCE", "TIME", "URL", "USD,…", "VOLTAGE", "WHEN",
    "WORKLOAD",
}  # fmt: skip
"""Placeholders of values without a list: quantities, files, and names of things outside gpuyard."""

WITHOUT_ANSWER = {
    *("data fetch", "help", "lab down", "lab exec", "results export", "schema", "version"),
    *("init workload", "init cluster", "init plan", "init site", "init job", "init deployment"),
    *("deploy open jupyter", "deploy ssh", "deploy ssh-config", "stack dockerfile"),
    *("lease", "release", "share drain", "share export slurm", "share recover", "share restart", "share resume"),
    *("serve token new", "serve token revoke", "share serve", "share setup", "share use", "cancel", "logs", "retry"),
}  # fmt: skip
"""Commands that do something, or print a file or another program's output."""


def _list_options() -> list[tuple[str, str, Any]]:
    """Return each option as (command, name, option)."""
    return [
        (command, option.opts[-1], option)
        for command, declared in every_command().items()
        for option in get_parameters(declared)
        if option.param_type_name == "option" and option.name != "help"
    ]


def test_every_command_that_answers_has_the_four_formats() -> None:
    formats = ("--json", "--output-format")
    for name, command in every_command().items():
        if not getattr(command, "commands", {}):
            offered = {option for parameter in command.params for option in parameter.opts}
            assert all((option in offered) == (name not in WITHOUT_ANSWER) for option in formats), (
                name
            )
    assert set(every_command()) >= WITHOUT_ANSWER


def test_an_option_has_the_same_placeholder_everywhere() -> None:
    placeholders: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for command, name, option in _list_options():
        shown = option.metavar or ""
        kind = "N" if shown in COUNTS else SAME_PLACEHOLDER.get(shown, shown)
        placeholders[name][kind].append(command)
    assert {name: dict(kinds) for name, kinds in placeholders.items() if len(kinds) > 1} == {}


def test_an_option_with_several_explanations_has_one_meaning() -> None:
    explanations: dict[str, set[str]] = defaultdict(set)
    for _, name, option in _list_options():
        explanations[name].add(option.help.partition(" (default: ")[0].removesuffix("."))
    several = {name for name, texts in explanations.items() if len(texts) > 1}
    assert several == set(MEANINGS), "say what these have in common, or rename all but one of them"


def test_the_words_of_the_field_are_the_same_everywhere() -> None:
    names = {name for _, name, _ in _list_options()}
    assert not {"--cluster", "--timeout"} & names, "--on and --wait mean the same"
    assert not [name for name in names if "per-machine" in name], "use per-node"


def _get_choices(command: Any, parameter: Any) -> list[str]:
    declared = inspect.signature(command.callback).parameters.get(parameter.name)
    return [] if declared is None else list_choices(declared.annotation)


def test_every_option_shows_or_completes_its_values() -> None:
    unknown = []
    for command, name, option in _list_options():
        if option.is_flag or name in FREE_NAMES or name == "--output-format":
            continue
        values = _get_choices(every_command()[command], option)
        listed = values and all(value in f"{option.metavar} {option.help}" for value in values)
        completed = option._custom_shell_complete is not None
        if not listed and not completed and option.metavar not in OPEN_PLACEHOLDERS:
            unknown.append((command, name, option.metavar))
    assert unknown == []


def test_choices_are_those_of_the_packages() -> None:
    from gpuyard.economics.billing import INCREMENTS
    from gpuyard.hardware import PRESETS
    from gpuyard.measure.collectives.plan import OPERATIONS
    from gpuyard.measure.registry import RESULT_KINDS
    from gpuyard.measure.training.strategies import MEASURABLE_STRATEGIES
    from gpuyard.policies import POLICIES
    from gpuyard.specs.deployment import FrameworkName
    from gpuyard.specs.exchange import StrategyName
    from gpuyard.specs.parallel import LargeStrategy
    from gpuyard.specs.schema import SPECS

    assert list(choices.Framework) == list(get_args(FrameworkName))
    for declared, names in (
        (choices.Collective, OPERATIONS),
        (choices.Increment, INCREMENTS),
        (choices.MeasuredStrategy, MEASURABLE_STRATEGIES),
        (choices.PolicyName, POLICIES),
        (choices.PredictedStrategy, [*get_args(StrategyName), *get_args(LargeStrategy)]),
        (choices.ResultKind, RESULT_KINDS),
        (choices.SpecName, SPECS),
        (choices.Topology, PRESETS),
    ):
        assert set(get_args(declared)) == set(names), declared


def test_the_shell_completes_names(cli: Cli) -> None:
    for line, expected in (
        ("gpuyard queue policy fa", {"fair-share"}),
        ("gpuyard bench collectives --backend n", {"nccl"}),
        ("gpuyard bench collectives --op all_reduce,br", {"all_reduce,broadcast"}),
        ("gpuyard topo --gpu rtx-40", {"rtx-4090", "rtx-4080"}),
        ("gpuyard catalog prices --cloud az", {"azure"}),
        ("gpuyard catalog links infiniband-h", {"infiniband-hdr"}),
        ("gpuyard reserve ca", {"cancel"}),
    ):
        *_, word = line.split()
        done = cli(
            environment={
                "_GPUYARD_COMPLETE": "complete_bash",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(line.split()) - 1),
            }
        )
        names = set(done.stdout.split())
        assert expected & names and all(name.startswith(word) for name in names), (line, names)


def test_catalog_tables_offer_only_the_filters_that_apply() -> None:
    from gpuyard.cli import catalog
    from gpuyard.cli.catalog.hardware import gpus, published

    columns = {"--gpu": "gpu", "--min-memory": "gpu", "--cloud": "cloud"}
    checked = 0
    for name, command in every_command().items():
        table = name.removeprefix("catalog ").replace("-", "_")
        if not name.startswith("catalog "):
            continue
        own = {"gpus": gpus, "published": published}
        view = (own.get(table) or getattr(catalog, table))()
        offered = {parameter.opts[0] for parameter in command.params}
        for option, column in columns.items():
            if (table, option) != ("gpus", "--cloud"):  # for --model
                assert (option in offered) == (getattr(view, column) is not None), (name, option)
                checked += 1
    assert checked > 50
