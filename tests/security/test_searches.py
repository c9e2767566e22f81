"""A short spec that means very many combinations is refused by their number, before any of them is made."""

from pathlib import Path

import pytest

from tests.conftest import Cli

_PLAN = """name: p
workload: {name: r, model: resnet50, epochs: 90, dataset: {samples: 1281167, bytes_per_sample: 115 kB}}
runs_per_month: 20
"""
_MANY = list(range(1, 1001))


@pytest.mark.parametrize("command", ["plan", "playbook"])
@pytest.mark.parametrize(
    ("search", "what"),
    [
        ({"nodes": _MANY}, "1,000 numbers of nodes, 5 batches and 4 remedies"),
        ({"batch": _MANY}, "8 numbers of nodes, 1,000 batches and 4 remedies"),
        ({"nodes": _MANY, "batch": _MANY}, "1,000 numbers of nodes, 1,000 batches"),
    ],
)
def test_a_plan_with_too_many_candidates_is_one_sentence(
    cli: Cli, tmp_path: Path, command: str, search: dict[str, list[int]], what: str
) -> None:
    path = tmp_path / "t.plan.yaml"
    path.write_text(f"{_PLAN}search: {search}\n")
    said = cli(command, str(path), status=2).stderr
    assert "candidates, " in said
    assert " is the most: " in said
    assert what in said
    assert (
        "shorten 'search.nodes' or 'search.batch', or name 'search.gpus' or 'search.offers'" in said
    )
    assert said.count("\n") == 1


@pytest.mark.parametrize("key", ["nodes", "batch"])
def test_a_list_that_is_too_long_names_its_key(cli: Cli, tmp_path: Path, key: str) -> None:
    path = tmp_path / "t.plan.yaml"
    path.write_text(f"{_PLAN}search: {{{key}: {list(range(1, 3001))}}}\n")
    said = cli("plan", str(path), status=2).stderr
    assert said.endswith(f":4: search.{key}: takes at most 1000 items, got a list\n")


_LISTED = ",".join(map(str, range(1, 20_001)))
_THOUSAND = ",".join(map(str, _MANY))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("predict", "resnet50", "--on", "dgx-a100", "--batch", _LISTED),
         "batch size: takes at most 1,000 numbers, got 20,000"),
        (("predict", "resnet50", "--on", "dgx-a100", "--gpus", _LISTED),
         "number of GPUs: takes at most 1,000 numbers, got 20,000"),
        (("predict", "resnet50", "--on", "200xdgx-a100@10G", "--gpus", _THOUSAND, "--batch", _THOUSAND),
         "1,000 numbers of GPUs and 1,000 batch sizes are 1,000,000 predictions, 2,000 is the most"),
        (("topo", "compare", "single-root", "--gpus", _LISTED),
         "number of GPUs: takes at most 1,000 numbers, got 20,000"),
        (("bench", "train", "resnet18", "--dry-run", "--batch", _LISTED),
         "batch size: takes at most 1,000 numbers, got 20,000"),
        (("bench", "train", "resnet18", "--dry-run", "--workers", _THOUSAND, "--batch", _THOUSAND),
         "1,000,000 points are too many for one sweep, 10,000 is the most"),
    ],
)  # fmt: skip
def test_lists_on_the_command_line(cli: Cli, arguments: tuple[str, ...], sentence: str) -> None:
    assert cli(*arguments, status=2).stderr == f"gpuyard: {sentence}\n"


def test_a_sweep_is_counted_before_the_files_that_it_names_are_read(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "t.sweep.yaml"
    path.write_text(
        f"name: s\nworkloads: [absent.workload.yaml, resnet18]\nnodes: {_MANY}\nbatch: {_MANY}\n"
        f"link: [{', '.join(['1 Gbit/s'] * 1000)}]\nrepeats: 100\n"
    )
    said = cli("bench", "sweep", str(path), "--dry-run", status=2).stderr
    assert said == (
        "gpuyard: 200,000,000,000 points are too many for one sweep, 10,000 is the most\n"
    )


@pytest.mark.parametrize(
    ("clusters", "more", "sentence"),
    [
        ("- {cluster: absent.cluster.yaml}\n" * 101, "",
         "2 workloads on 101 clusters are 202 combinations, 200 is the most for one study"),
        (f"- {{cluster: absent.cluster.yaml, gpus: {_MANY}}}\n" * 6, f"epoch_batches: {_MANY}\n",
         "the study has 24,000 points to predict, 20,000 is the most"),
    ],
)  # fmt: skip
def test_a_study_is_counted_before_the_files_that_it_names_are_read(
    cli: Cli, tmp_path: Path, clusters: str, more: str, sentence: str
) -> None:
    path = tmp_path / "t.study.yaml"
    path.write_text(
        f"name: s\nworkloads: [absent.workload.yaml, resnet50]\n{more}clusters:\n{clusters}"
    )
    said = cli("study", str(path), "--output", str(tmp_path / "out"), status=2).stderr
    assert sentence in said
    assert "absent" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "resnet50", "--on", "8x" + "dgx" * 30_000),
        ("predict", "x" * 5_000, "--on", "dgx-a100"),
        ("predict", "resnet50", "--on", "8xdgx-a100@" + "1" * 100_000),
        ("topo", "--preset", "dual-root", "--svg", "x" * 5_000),
        ("cost", "--rent", "$1/h", "--buy", "$9000", "--html", "x" * 5_000),
        ("cost", "--rent", "$1" + " " * 100_000 + "x/h", "--buy", "$9000"),
        ("cost", "--rent", "$1/h", "--buy", "$" + "9" * 400),
        ("bench", "train", "resnet18", "--lab", "9" * 5_000 + "x1Gbit", "--dry-run"),
    ],
    ids=lambda arguments: " ".join(argument[:12] for argument in arguments),
)
def test_words_that_are_far_too_long_are_one_sentence(cli: Cli, arguments: tuple[str, ...]) -> None:
    said = cli(*arguments, status=2).stderr
    assert said.startswith("gpuyard: ")
    assert said.count("\n") == 1
    assert len(said) < 5_000
