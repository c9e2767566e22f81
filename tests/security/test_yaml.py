"""Small YAML files can't exhaust the machine: each is refused in one sentence, before anything is made of it."""

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
    ("text", "sentence"),
    [
        (LAUGHS, ":5:14: more than 20,000 values, aliases counted as often as they are used"),
        (MERGED_LAUGHS, "more than 20,000 values"),
        ("a: [" + "1," * 30_000 + "]", "more than 20,000 values"),
        ("name: " + "[" * 5_000 + "]" * 5_000, ":1:36: nested deeper than 30 levels"),
        ("- " * 5_000, "nested deeper than 30 levels"),
        ("? " * 5_000, "nested deeper than 30 levels"),
        ("a: &a {<<: *a}", ":1:12: 'a' contains itself"),
        ("a: &a [*a]", ":1:8: 'a' contains itself"),
        ("a: *b", ":1:4: no anchor is called 'b'"),
        ("a: {<<: 1}", ":1:9: << takes keys with values, or a list of such"),
        ("? [a, b]\n: 1", ":1:3: a key must be a word"),
        ("name: x\nnodes: " + "9" * 400, ":2:8: a number of 400 characters is too long"),
        ("name: x\nnodes: " + "9" * 5_000, ":2:8: a number of 5,000 characters is too long"),
        ("name: x\n" * 30_000, "larger than 200 kB"),
        ('name: "\\UFFFFFFFF"', "this is not valid YAML"),
        ("name: x\x1b]52;c;AAAA\x07", "this is not valid YAML"),
        ("a: !!timestamp 2020-99-99", "means nothing here"),
        ("--- a\n--- b\n", ":2:1: this is not valid YAML: expected a single document"),
    ],
)  # fmt: skip
def test_what_would_exhaust_or_break_is_one_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / "t.cluster.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as mistake:
        read_cluster(str(path))
    said = str(mistake.value)
    assert sentence in said
    assert "\n" not in said
    assert len(said) < 300


def test_a_day_that_is_none_names_its_line_and_key(tmp_path: Path) -> None:
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
text: ["1", !!str 2, ! 3, '', "a\\tb"]
merged: {<<: *base, unit: 7}
several: {<<: [{a: 1}, {a: 2, b: 3}]}
1: one
true: two
empty:
"""
    found = read_yaml(text, "t.yaml")
    assert found == {
        "base": {"rate": 1000, "unit": 2.5},
        "list": [31, 15, 5, 10, -3, 1e3, 1e-3, 0.5, 6.0, float("inf"), None, True, False, "yes",
                 "2026-01-31", "1.2.3"],
        "text": ["1", "2", "3", "", "a\tb"],
        "merged": {"rate": 1000, "unit": 7},
        "several": {"a": 1, "b": 3},
        "1": "one",
        "true": "two",
        "empty": None,
    }  # fmt: skip
    assert found.lines["merged"] == 5
    assert read_yaml("", "t.yaml") is None


@pytest.mark.timeout(60)  # it took minutes
def test_a_quantity_of_spaces_is_not_looked_through(tmp_path: Path) -> None:
    path = tmp_path / "t.cluster.yaml"
    path.write_text(f'name: x\nmachine: t4\nstorage: {{read: "1{" " * 190_000}x"}}\n')
    with pytest.raises(SpecError, match=r"storage.read: .*\(190,002 characters\) is not a rate"):
        read_cluster(str(path))
