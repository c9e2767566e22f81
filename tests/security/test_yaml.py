"""Small YAML files cannot exhaust the machine: gpuyard refuses each in one line before it builds values."""

from pathlib import Path

import pytest

from gpuyard.catalog.specfiles import read_offers
from gpuyard.errors import SpecError
from gpuyard.hardware.clusters import read_cluster
from gpuyard.specs.loading import read_yaml

LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)
MERGED_LAUGHS = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, ":4:5: more than 20,000 values"),
        (MERGED_LAUGHS, "more than 20,000 values"),
        ("a: [" + "1," * 30_000 + "]", "more than 20,000 values"),
        ("name: " + "[" * 5_000 + "]" * 5_000, ":1:36: nested deeper than 30 levels"),
        ("- " * 5_000, "nested deeper than 30 levels"),
        ("? " * 5_000, "nested deeper than 30 levels"),
        ("a: &a {<<: *a}", ":1:4: 'a' contains itself"),
        ("a: &a [*a]", ":1:4: 'a' contains itself"),
        ("a: *b", ":1:4: this is not valid YAML: found undefined alias 'b'"),
        ("a: {<<: 1}", ":1:9: << accepts"),
        ("? [a, b]\n: 1", ":1:3: a key must be a word"),
        ("name: x\nnodes: " + "9" * 400, ":2:8: a number of 400 characters is too long"),
        ("name: x\nnodes: " + "9" * 5_000, ":2:8: a number of 5,000 characters is too long"),
        ("name: x\n" * 30_000, "larger than 200 kB"),
        ('name: "\\UFFFFFFFF"', "this is not valid YAML"),
        ("name: x\x1b]52;c;AAAA\x07", "this is not valid YAML"),
        ("a: !!binary aGk=", ":1:4: the tag 'tag:yaml.org,2002:binary' is not supported"),
        ("a: !!set {b, c}", ":1:4: the tag 'tag:yaml.org,2002:set' is not supported"),
        ("--- a\n--- b\n", ":2:1: this is not valid YAML: expected a single document"),
    ],
)  # fmt: skip
def test_dangerous_or_broken_files_are_refused_in_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "t.cluster.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as mistake:
        read_cluster(str(path))
    assert message in str(mistake.value)
    assert "\n" not in str(mistake.value)
    assert len(str(mistake.value)) < 300


def test_an_alias_may_repeat_as_long_as_the_values_stay_few() -> None:
    document = read_yaml("a: &a [1, 2]\nb: &a [3]\nc: [*a, *a]\n", "t.yaml")
    assert document["c"] == [[3], [3]]  # a later anchor replaces an earlier one
    assert document["c"].lines == [2, 2]


def test_an_invalid_date_names_its_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "t.offers.yaml"
    path.write_text(
        "name: x\noffers:\n- {name: a, kind: on-demand, price: $1/h, date: 2020-99-99}\n"
    )
    with pytest.raises(SpecError, match=r":3: offers\[0\].date: expected a day like 2026-01-31"):
        read_offers(path)


def test_values_are_what_yaml_says() -> None:
    text = """
base: &base {rate: 1_000, unit: 2.5}
list: [0x1F, 0o17, 0b101, 010, -3, +1e3, 1e-3, .5, 6., .inf, ~, true, False, yes, 2026-01-31, 1.2.3]
text: ["1", !!str 2, '', "a\\tb", 0b_, ._, 1_]
merged: {<<: *base, unit: 7}
several: {<<: [{a: 1}, {a: 2, b: 3}]}
1: one
true: two
empty:
"""
    document = read_yaml(text, "t.yaml")
    assert document == {
        "base": {"rate": 1000, "unit": 2.5},
        "list": [31, 15, 5, 10, -3, 1e3, 1e-3, 0.5, 6.0, float("inf"), None, True, False, "yes",
                 "2026-01-31", "1.2.3"],
        "text": ["1", "2", "", "a\tb", "0b_", "._", 1],
        "merged": {"rate": 1000, "unit": 7},
        "several": {"a": 1, "b": 3},
        "1": "one",
        "true": "two",
        "empty": None,
    }  # fmt: skip
    assert document.lines["merged"] == 5
    assert read_yaml("", "t.yaml") is None


@pytest.mark.timeout(60)  # a regular expression that backtracks takes minutes
def test_a_long_quantity_of_spaces_is_refused_quickly(tmp_path: Path) -> None:
    path = tmp_path / "t.cluster.yaml"
    path.write_text(f'name: x\nmachine: t4\nstorage: {{read: "1{" " * 190_000}x"}}\n')
    with pytest.raises(SpecError, match=r"storage.read: .*\(190,002 characters\) is not a rate"):
        read_cluster(str(path))
