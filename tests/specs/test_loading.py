"""A mistake in a spec file is reported with file, line, key, and the closest valid name."""

from pathlib import Path

import pytest

from gpuyard.catalog.specfiles import (
    read_deployment,
    read_job,
    read_offers,
    read_plan,
    read_site,
    read_study,
    read_sweep,
    read_workload,
)
from gpuyard.errors import SpecError, UnknownName
from gpuyard.hardware.clusters import read_cluster
from gpuyard.specs import Cluster, read_spec

EXAMPLES = Path(__file__).parents[2] / "examples"

CLUSTER = """\
name: test
nodes: 4
machine: {gpu: v100-sxm2-16gb, gpus: 8, topology: nvlink-hybrid-cube-mesh}
network:
  link: infiniband-edr
  latency: 30 us
"""


def mistake_in(tmp_path: Path, text: str, kind: str = "cluster") -> str:
    path = tmp_path / f"t.{kind}.yaml"
    path.write_text(text)
    read = {"cluster": read_cluster, "workload": read_workload}[kind]
    with pytest.raises(SpecError) as mistake:
        read(str(path))
    assert mistake.value.exit_status == 2
    assert str(path) in str(mistake.value)
    return str(mistake.value).replace(str(tmp_path), "")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.name)
def test_examples_are_valid_and_name_their_schema(path: Path) -> None:
    kind = path.name.split(".")[-2]
    first = path.read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema=../schemas/{kind}.schema.json"
    match kind:
        case "workload":
            read_workload(str(path))
        case "cluster":
            read_cluster(str(path))
        case "study":
            read_study(path)
        case "offers":
            read_offers(path)
        case "plan":
            read_plan(path)
        case "site":
            read_site(path)
        case "sweep":
            read_sweep(path)
        case "job":
            read_job(path)
        case "deployment":
            read_deployment(path)
        case _:
            raise AssertionError(kind)


def test_good_cluster_reads_in_base_units(tmp_path: Path) -> None:
    path = tmp_path / "t.cluster.yaml"
    path.write_text(CLUSTER)
    cluster = read_cluster(str(path))
    assert cluster.network is not None
    assert cluster.network.latency == pytest.approx(30e-6)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("nodes:", "node:", ":2: node: no key is called 'node'; did you mean 'nodes' or 'nodes_per_rack'?"),
        ("topology:", "topologie:", ":3: machine.topologie: no key is called 'topologie'; did you mean 'topology'?"),
        ("v100-sxm2-16gb", "v100-sxm-16gb", ":3: machine.gpu: no GPU is called 'v100-sxm-16gb'; did you mean 'v100-sxm2-16gb'?"),
        ("infiniband-edr", "infiniband-eddr", ":5: network.link: no link is called 'infiniband-eddr'; did you mean 'infiniband-edr'?"),
        ("30 us", "30 GB", ":6: network.latency: 'GB' in '30 GB' is not a unit of a duration"),
        ("30 us", "30", ":6: network.latency: '30' has no unit; write a duration like '30 us'"),
        ("nvlink-hybrid-cube-mesh", "nvlink-cube-mesh", "torus or consumer, got 'nvlink-cube-mesh'; did you mean 'nvlink-hybrid-cube-mesh'?"),
        ("nodes: 4", "nodes: 0", ":2: nodes: must be above 0, got 0"),
        ("name: test", "name: true", ":1: name: expected text, got true"),
        ("nodes: 4", "nodes: [4]", ":2: nodes: expected a whole number, got a list"),
        ("nodes: 4", "nodes: four", ":2: nodes: expected a whole number, got 'four'"),
        ("name: test\n", "", ":1: name: this is required"),
        ("gpus: 8, ", "", ":3: machine.gpus: this is required"),
        ("{gpu: v100-sxm2-16gb, gpus: 8, topology: nvlink-hybrid-cube-mesh}", "dgx-a10", ":3: machine: no machine is called 'dgx-a10'; did you mean 'dgx-a100' or 'dgx-a100-40gb'?"),
        ("  link: infiniband-edr\n", "  link: infiniband-edr\n  rate: 1 Gbit/s\n", ":4: network: a network needs either 'link' or 'rate'"),
    ],
)  # fmt: skip
def test_mistake_names_line_key_and_closest(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    assert before in CLUSTER
    assert message in mistake_in(tmp_path, CLUSTER.replace(before, after))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected keys with values, like name: mine, got nothing"),
        ("- a\n- b\n", "expected keys with values, like name: mine, got a list"),
        ("name: [unclosed\n", "is not valid YAML"),
        ("name: a\nname: b\n", ":2:1: duplicate key 'name', first used in line 1"),
        ("\tname: a\n", "is not valid YAML"),
        (
            "name: !!python/object/apply:os.system [true]\nnodes: 1\nmachine: dgx-a100\n",
            ":1:7: the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not",
        ),
    ],
)
def test_files_that_are_not_specs(tmp_path: Path, text: str, message: str) -> None:
    assert message in mistake_in(tmp_path, text)


def test_missing_file_directory_and_binary(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none.yaml: .*not found"):
        read_cluster(str(tmp_path / "none.yaml"))
    (tmp_path / "d.yaml").mkdir()
    with pytest.raises(SpecError, match="is a directory"):
        read_cluster(str(tmp_path / "d.yaml"))
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="UTF-8"):
        read_cluster(str(tmp_path / "b.yaml"))


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    text = CLUSTER.replace("30 us", "30").replace("v100-sxm2-16gb", "v1000")
    message = mistake_in(tmp_path, text)
    assert "machine.gpu" in message
    assert "network.latency" in message


def test_catalog_names_replace_files() -> None:
    assert read_workload("resnet50").model == "resnet50"
    assert read_cluster("dgx-a100").machine == "dgx-a100"
    clips = read_workload("spoken-digits-conv").dataset
    assert clips is not None
    assert clips.source == "spoken-digits"
    with pytest.raises(UnknownName, match="did you mean 'resnet50'"):
        read_workload("resnet-50")


def test_more_than_one_node_needs_a_network(tmp_path: Path) -> None:
    text = "name: x\nnodes: 2\nmachine: {gpu: t4, gpus: 4}\n"
    assert "more than one node needs a 'network'" in mistake_in(tmp_path, text)


@pytest.mark.parametrize(
    ("offer", "message"),
    [
        ("{name: a, kind: own, hardwrae: $1}", "no key is called 'hardwrae'; did you mean 'hardware'?"),
        ("{name: a, kind: rent}", "no kind is called 'rent'"),
        ("{name: a}", "offers[0]: this needs a key 'kind'"),
        ("{name: a, kind: on-demand}", "either 'price' or 'instance'"),
        ("{name: a, kind: on-demand, instance: aws/p4d}", "did you mean 'aws/p4d.24xlarge'"),
        ("{name: a, kind: own, hardware: $1}, {name: a, kind: own, hardware: $2}", "two offers are called 'a'"),
    ],
)  # fmt: skip
def test_mistakes_in_offers(tmp_path: Path, offer: str, message: str) -> None:
    path = tmp_path / "t.offers.yaml"
    path.write_text(f"name: x\noffers: [{offer}]\n")
    with pytest.raises(SpecError) as mistake:
        read_offers(path)
    assert message in str(mistake.value)
    assert "at least 1 item" not in str(mistake.value)


def test_a_mistake_in_a_list_describes_its_items(tmp_path: Path) -> None:
    path = tmp_path / "t.deployment.yaml"
    path.write_text(
        "name: t\ncluster: 1x1xt4\ntarget:\n  kind: openstack\n  flavor: g\n  image: i\n  external_network: e\n"
        "  ssh_from: 10.0.0.0/8\n"
        "  name_servers:\n    - 192.0.2.1\n    - dns.example\n"
    )
    with pytest.raises(SpecError) as mistake:
        read_deployment(path)
    assert str(mistake.value) == (
        f"{path}:11: target.name_servers[1]: expected an IPv4 address, got 'dns.example'"
    )
    path.write_text(
        "name: t\ncluster: 1x1xt4\ntarget: {kind: gpulab, project: p, image: debian, gpu_model: [a/b]}\n"
    )
    with pytest.raises(SpecError, match=r"gpu_model\[0\]: expected a GPU model .*, got 'a/b'"):
        read_deployment(path)


def test_a_file_of_another_kind_gives_one_message(tmp_path: Path) -> None:
    (tmp_path / "room.site.yaml").write_text("kind: office\ncircuits: []\n")
    with pytest.raises(SpecError) as refused:
        read_spec(tmp_path / "room.site.yaml", Cluster)
    assert str(refused.value).endswith(
        "room.site.yaml: this is a *.site.yaml by its name, expected a *.cluster.yaml"
    )


def test_a_missing_file_suggests_a_similar_one(tmp_path: Path) -> None:
    (tmp_path / "apollo.cluster.yaml").write_text("")
    for name in ("apollo.cluster.yml", "apolo.cluster.yaml", "apollo"):
        with pytest.raises(SpecError, match=r"not found; did you mean '.*apollo\.cluster\.yaml'\?"):
            read_spec(tmp_path / name, Cluster)
    with pytest.raises(SpecError, match=r"not found$"):
        read_spec(tmp_path / "quite-different.txt", Cluster)


def test_tabs_and_ages_are_explained(tmp_path: Path) -> None:
    (tmp_path / "tab.cluster.yaml").write_text("name: x\n\tnodes: 2\n")
    with pytest.raises(SpecError, match=r":2:1: .*tab .*indent with spaces"):
        read_spec(tmp_path / "tab.cluster.yaml", Cluster)
    (tmp_path / "old.plan.yaml").write_text("owned: [{gpu: t4, gpus: 4, age: old}]\n")
    with pytest.raises(SpecError, match="'old' is not a duration; write it like '3 years'"):
        read_plan(tmp_path / "old.plan.yaml")
