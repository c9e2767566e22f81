"""A short spec with very many combinations is refused by their number, before any of them is created."""

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
    ("search", "nodes", "batches"),
    [
        ({"nodes": _MANY}, "1,000", "5"),
        ({"batch": _MANY}, "8", "1,000"),
        ({"nodes": _MANY, "batch": _MANY}, "1,000", "1,000"),
    ],
)
def test_a_plan_with_too_many_candidates_is_one_line(
    cli: Cli,
    tmp_path: Path,
    command: str,
    search: dict[str, list[int]],
    nodes: str,
    batches: str,
) -> None:
    path = tmp_path / "t.plan.yaml"
    path.write_text(f"{_PLAN}search: {search}\n")
    stderr = cli(command, str(path), status=2).stderr
    assert "candidates" in stderr
    assert f" {nodes} node" in stderr or f" {nodes} numbers of nodes" in stderr
    assert f" {batches} batches" in stderr
    for key in ("search.nodes", "search.batch", "search.gpus", "search.offers"):
        assert f"'{key}'" in stderr
    assert stderr.count("\n") == 1


@pytest.mark.parametrize("key", ["nodes", "batch"])
def test_a_list_that_is_too_long_names_its_key(cli: Cli, tmp_path: Path, key: str) -> None:
    path = tmp_path / "t.plan.yaml"
    path.write_text(f"{_PLAN}search: {{{key}: {list(range(1, 3001))}}}\n")
    stderr = cli("plan", str(path), status=2).stderr
    assert f":4: search.{key}: " in stderr
    assert "1000" in stderr
    assert stderr.count("\n") == 1


_LISTED = ",".join(map(str, range(1, 20_001)))
_THOUSAND = ",".join(map(str, _MANY))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("predict", "resnet50", "--on", "dgx-a100", "--batch", _LISTED),
         ("batch size", "1,000", "20,000")),
        (("predict", "resnet50", "--on", "dgx-a100", "--gpus", _LISTED),
         ("GPUs", "1,000", "20,000")),
        (("predict", "resnet50", "--on", "200xdgx-a100@10G", "--gpus", _THOUSAND, "--batch", _THOUSAND),
         ("1,000,000 predictions", "2,000")),
        (("topo", "compare", "single-root", "--gpus", _LISTED),
         ("GPUs", "1,000", "20,000")),
        (("bench", "train", "resnet18", "--dry-run", "--batch", _LISTED),
         ("batch size", "1,000", "20,000")),
        (("bench", "train", "resnet18", "--dry-run", "--workers", _THOUSAND, "--batch", _THOUSAND),
         ("10,000 points", "1,000,000")),
    ],
)  # fmt: skip
def test_lists_on_the_command_line(
    cli: Cli, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    stderr = cli(*arguments, status=2).stderr
    assert all(part in stderr for part in parts), stderr
    assert stderr.startswith("gpuyard: ")
    assert stderr.count("\n") == 1


def test_a_sweep_is_counted_before_the_files_that_it_names_are_read(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "t.sweep.yaml"
    path.write_text(
        f"name: s\nworkloads: [absent.workload.yaml, resnet18]\nnodes: {_MANY}\nbatch: {_MANY}\n"
        f"link: [{', '.join(['1 Gbit/s'] * 1000)}]\nrepeats: 100\n"
    )
    stderr = cli("bench", "sweep", str(path), "--dry-run", status=2).stderr
    assert "10,000 points" in stderr
    assert "200,000,000,000" in stderr
    assert "absent" not in stderr


@pytest.mark.parametrize(
    ("clusters", "more", "parts"),
    [
        ("- {cluster: absent.cluster.yaml}\n" * 101, "",
         ("2 workloads", "101 clusters", "202 combinations", "200")),
        (f"- {{cluster: absent.cluster.yaml, gpus: {_MANY}}}\n" * 6, f"epoch_batches: {_MANY}\n",
         ("24,000 points", "20,000", "'epoch_batches'")),
    ],
)  # fmt: skip
def test_a_study_is_counted_before_the_files_that_it_names_are_read(
    cli: Cli, tmp_path: Path, clusters: str, more: str, parts: tuple[str, ...]
) -> None:
    path = tmp_path / "t.study.yaml"
    path.write_text(
        f"name: s\nworkloads: [absent.workload.yaml, resnet50]\n{more}clusters:\n{clusters}"
    )
    stderr = cli("study", str(path), "--output-dir", str(tmp_path / "out"), status=2).stderr
    assert all(part in stderr for part in parts), stderr
    assert "absent" not in stderr


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
def test_arguments_that_are_far_too_long_are_one_line(cli: Cli, arguments: tuple[str, ...]) -> None:
    stderr = cli(*arguments, status=2).stderr
    assert stderr.startswith("gpuyard: ")
    assert stderr.count("\n") == 1
    assert len(stderr) < 5_000
