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
