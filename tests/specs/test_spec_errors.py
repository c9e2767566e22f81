"""Every mistake in a spec is explained in a user's terms, with units and without Python's."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gpuyard.catalog.specfiles import known_names
from gpuyard.errors import SpecError
from gpuyard.specs import read_spec
from gpuyard.specs.schema import SPECS

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
WRONG: tuple[Any, ...] = (
    "zzz", "", [], ["zzz"], {"zzz": 1}, -1, 0, 1.5, 1e29, 10**9, True, None,
    "2000 years", "-3%", "5 parsec", "2026-13-01",
)  # fmt: skip
PYTHON_TERMS = re.compile(
    r"\b(None|True|False|dict|tuple|str|int|float|datetime|Commented\w+|[Ii]nput (should|string)|\w+Error|[Ee]rrno)\b"
    r"|<class| object |_type\b|\bparse\b|\d\.?\d*e\+\d\d or"
)


def places(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in inner:
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_messages_are_in_a_users_terms(example: Path, tmp_path: Path) -> None:
    kind = SPECS[example.name.split(".")[-2]]
    good = YAML(typ="safe").load(example.read_text())
    path = tmp_path / "spec.yaml"
    mistakes = 0
    for place in places(good):
        for wrong in WRONG:
            document = copy.deepcopy(good)
            node = document
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = wrong
            path.write_text(
                json.dumps(document, indent=1, default=str)
            )  # JSON is YAML, and quick to write
            try:
                read_spec(path, kind, known_names())
            except SpecError as mistake:
                message = str(mistake).replace(str(path), "")
                mistakes += 1
                own_words = re.sub(r"(got )?'[^']*'|got \S+|[a-z_]+:", "", message)
                assert not PYTHON_TERMS.search(own_words), (place, wrong, message)
                assert all(re.match(r":\d+: |: and ", line) for line in message.splitlines())
    assert mistakes > 20


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (
            "offers",
            "name: a\noffers: [{name: x, kind: own, hardware: $1, price: $2/h}]\n",
            "offers[0].price: 'price' is a key of on-demand and spot, not of own; allowed: name",
        ),
        (
            "offers",
            "name: a\noffers: [{name: x, kind: no, hardware: $1}]\n",
            "no kind is called 'no'; choose from: on-demand, own, reserved, spot",
        ),
        (
            "plan",
            "name: a\nworkload: resnet50\nruns_per_month: 1\nhorizon: 30 years\n",
            "horizon: must be 20 years or less, got '30 years'",
        ),
        (
            "plan",
            "name: a\nworkload: resnet50\nruns_per_month: 1e9\n",
            "runs_per_month: must be 1,000,000 or less",
        ),
        (
            "cluster",
            "name: a\nmachine: rtx-2070\n",
            "machine: no machine is called 'rtx-2070': it is a GPU",
        ),
        (
            "workload",
            "name: a\nmodel: resnet50\ndataset: {samples: 1, preprocess: 5 parsec}\n",
            "'parsec' in '5 parsec' is not a unit of a duration; use ns, us, ms, s, min, h,",
        ),
    ],
)
def test_messages_name_the_allowed_values(
    kind: str, text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as mistake:
        read_spec(path, SPECS[kind], known_names())
    assert message in str(mistake.value)
