"""Output of nccl-tests and other tools: each reader, and the verdicts about healthy and faulty machines."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.api.tool_output import judge_tool_output
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import read_cluster
from gpuyard.measure.tool_output.detect import parse_tool_output, read_tool_output
from gpuyard.measure.tool_output.expected_collectives import list_faults, predict_rates
from gpuyard.measure.tool_output.judge import judge_output
from gpuyard.measure.tool_output.readings import CollectiveReading, SizedRate, ToolOutput

FILES = Path(__file__).parents[2] / "data" / "tool_output"
GIB = 1 << 30


def judge(name: str, **options: Any) -> dict[str, Any]:
    result = judge_tool_output(FILES / name, **options)
    document: dict[str, Any] = json.loads(json.dumps(result.answer.document))
    return document


def test_reads_ranks_gpus_and_rates_of_rccl_tests() -> None:
    (reading,) = read_tool_output(FILES / "mi300x.txt").collectives
    assert (reading.tool, reading.operation, reading.ranks, reading.nodes) == (
        "rccl-tests", "all_reduce", 8, 1,
    )  # fmt: skip
    assert reading.gpu_name == "AMD Instinct MI300X"
    assert reading.rows == (SizedRate(8388608, 161.14e9, 91.10 / 1e6, 0),)


def test_processes_that_are_all_rank_0_measured_nothing() -> None:
    document = judge("without_mpi.txt")
    assert document["verdict"] == "wrong"
    (reading,) = document["readings"]
    assert [cause["name"] for cause in reading["causes"]] == ["no-mpi"]


def test_prefixes_of_mpirun_and_srun_are_ignored() -> None:
    text = (FILES / "mi300x.txt").read_text()
    for prefix in ("[1,0]<stdout>:", "0: "):
        prefixed = "\n".join(prefix + line for line in text.splitlines())
        assert parse_tool_output(prefixed, "log").collectives[0].ranks == 8


def test_a_wrong_result_is_not_a_speed() -> None:
    text = (FILES / "mi300x.txt").read_text().replace("161.14      0", "161.14     17")
    output = parse_tool_output(text, "log")
    (judgment,) = judge_output(output, read_cluster("8xmi300x"))
    assert judgment.verdict == "wrong"


def test_one_rank_exchanges_nothing_and_no_rate_has_no_cause() -> None:
    text = (FILES / "mi300x.txt").read_text()
    output = parse_tool_output(text.replace("161.14", "  0.00"), "log")
    (judgment,) = judge_output(output, read_cluster("8xmi300x"))
    assert judgment.verdict == "slow"
    assert [cause.name for cause in judgment.causes] == ["unknown"]
    with pytest.raises(UserMistake, match="two GPUs or more"):
        judge_output(output, read_cluster("8xmi300x"), gpus=1)


def test_the_machine_is_asked_for_if_the_file_does_not_name_it(tmp_path: Path) -> None:
    text = (FILES / "mi300x.txt").read_text()
    unnamed = "\n".join(line for line in text.splitlines() if "Rank" not in line)
    (tmp_path / "log").write_text(unnamed)
    with pytest.raises(UserMistake, match="--on"):
        judge_tool_output(tmp_path / "log")
    # busbw / algbw = 2(n−1)/n tells the number of ranks
    (reading,) = parse_tool_output(unnamed, "log").collectives
    assert reading.ranks == 8


def test_several_nodes_need_a_network(tmp_path: Path) -> None:
    text = (FILES / "mi300x.txt").read_text()
    moved = re.sub(r"(Rank  [4-7] .* on) +g100n126", r"\1 g100n127", text)
    (tmp_path / "log").write_text(moved)
    with pytest.raises(UserMistake, match="on 2 nodes, but no network"):
        judge_tool_output(tmp_path / "log")


@pytest.mark.parametrize(
    ("file", "verdict", "rate"),
    [
        ("ib_write_bw.txt", "normal", 11728.47 * 2**20),
        ("p2p.txt", "normal", 376.56e9),
        ("nvbandwidth.txt", "normal", 22.63e9),
    ],
)
def test_healthy_links_are_normal(file: str, verdict: str, rate: float) -> None:
    document = judge(file)
    assert document["verdict"] == verdict
    assert document["readings"][0]["bytes_per_second"] == pytest.approx(rate, rel=2e-3)


def test_a_slow_pair_is_named() -> None:
    text = (FILES / "p2p.txt").read_text().replace("376.39 2498.88", "38.20 2498.88")
    output = parse_tool_output(text, "log")
    slow = [j for j in judge_output(output, read_cluster("4xh100")) if j.verdict == "slow"]
    assert [judgment.subject.split(" (")[0] for judgment in slow] == ["GPU2 → GPU1"]
    assert [cause.name for cause in slow[0].causes] == ["outlier", "slow-link"]


def make_matrix(rates: dict[int, float], gpus: int, peer: str, usual: float) -> str:
    """Return a matrix of p2pBandwidthLatencyTest in which all links of some GPUs have other rates."""
    rows = [
        f"   {a} "
        + " ".join(
            "911.08" if a == b else f"{rates.get(a, rates.get(b, usual)):.2f}" for b in range(gpus)
        )
        for a in range(gpus)
    ]
    title = f"Unidirectional P2P={peer} Bandwidth Matrix (GB/s)"
    return "\n".join([title, "   D\\D     0      1 ", *rows, ""])


def test_many_slow_links_of_one_gpu_are_one_line_that_names_it() -> None:
    text = make_matrix({2: 20.0}, 8, "Enabled", 376.0)
    (slow, normal) = judge_output(parse_tool_output(text, "log"), None)
    assert slow.subject.endswith("14 slow links of GPU2")
    assert [cause.name for cause in slow.causes] == ["outlier"]
    assert "42 links" in normal.subject


def test_peer_access_that_is_slower_than_the_detour_is_a_cause_without_a_machine() -> None:
    """An NVIDIA/nccl thread (814): all 30 links at 10 GB/s with peer access, and at 22 GB/s without."""
    text = make_matrix({}, 6, "Disabled", 22.2) + make_matrix({}, 6, "Enabled", 9.96)
    judgments = judge_output(parse_tool_output(text, "log"), None)
    assert [judgment.verdict for judgment in judgments] == ["not judged", "slow"]
    assert [cause.name for cause in judgments[1].causes] == ["slow-peer"]
    assert "30 slow links" in judgments[1].subject


def test_devices_without_an_address_name_the_machine() -> None:
    text = (
        "nvbandwidth Version: v0.2\nDevice 0: NVIDIA GeForce RTX 4090\nDevice 1: NVIDIA GeForce RTX 4090\n\n"
        "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
        "          0         1\n0     25.50     24.26\n"
    )
    (table,) = parse_tool_output(text, "log").tables
    assert table.gpu_names == ("NVIDIA GeForce RTX 4090",) * 2


def test_a_quoted_comment_is_read_and_a_table_without_rates_is_not_normal(tmp_path: Path) -> None:
    text = (FILES / "ib_write_bw.txt").read_text()
    quoted = "\n".join(f"> {line}" for line in text.splitlines())
    assert parse_tool_output(quoted, "log").tables == parse_tool_output(text, "log").tables
    empty = tmp_path / "log"
    empty.write_text(re.sub(r"^ *65536 .*$", "", text, flags=re.MULTILINE))
    result = judge_tool_output(empty)
    assert result.answer.parts[0].text.startswith("Not judged")  # type: ignore[union-attr]


def test_a_port_at_the_rate_of_a_slower_one_is_explained() -> None:
    document = judge("ib_write_bw.txt", link="200 Gbit/s")
    (reading,) = document["readings"]
    assert reading["verdict"] == "slow"
    assert reading["causes"][0]["name"] == "slower-link"


def test_two_ranks_of_osu_on_one_machine_use_its_links() -> None:
    assert judge("osu_bw.txt")["verdict"] == "not judged"
    assert judge("osu_bw.txt", on="4xa100-sxm4-40gb")["verdict"] in ("normal", "slow")
    assert judge("osu_reduce.txt", on="8xh100", gpus=8)["verdict"] == "not judged"


def test_slots_clocks_and_errors_are_found_on_the_faulty_gpu_only() -> None:
    healthy, faulty = judge("smi_query.txt")["readings"]
    assert (healthy["verdict"], healthy["causes"]) == ("normal", [])
    assert [cause["name"] for cause in faulty["causes"]] == [
        "narrow-slot", "throttled", "throttled", "memory-errors",
    ]  # fmt: skip
    gpu, bridges = judge("lspci.txt")["readings"]
    assert "1 of its 16 lanes" in gpu["causes"][0]["why"]
    assert bridges["causes"][0]["name"] == "acs"


@pytest.mark.parametrize(
    ("cluster", "gpus", "nodes"),
    [("8xh200", 8, 1), ("4xa100-pcie-80gb", 4, 1), ("2xdgx-h100", 16, 2)],
)
def test_every_fault_is_found_at_the_rate_that_it_leaves(
    cluster: str, gpus: int, nodes: int
) -> None:
    spec = read_cluster(cluster)
    normal = predict_rates(spec, gpus, nodes, "all_reduce", [GIB])
    faults = list(list_faults(spec, gpus, nodes, "all_reduce", GIB))
    assert faults
    for fault in faults:
        if fault.bytes_per_second >= normal.low[0]:
            continue  # not to be told from a healthy machine
        row = SizedRate(GIB, fault.bytes_per_second, 1.0)
        reading = CollectiveReading("nccl-tests", "all_reduce", gpus, nodes, None, (row,))
        (judgment,) = judge_output(ToolOutput("log", (reading,)), spec)
        assert judgment.verdict == "slow"
        assert fault.cause.name in [cause.name for cause in judgment.causes]


def test_the_expected_rate_is_normal() -> None:
    for name, gpus in (("8xh100", 8), ("8xrtx-4090", 8), ("2xdgx-a100", 16)):
        spec = read_cluster(name)
        expected = predict_rates(spec, gpus, spec.nodes, "all_reduce", [GIB])
        assert expected.low[0] < expected.expected[0] < expected.high[0]
        row = SizedRate(GIB, expected.expected[0], 1.0)
        reading = CollectiveReading("nccl-tests", "all_reduce", gpus, spec.nodes, None, (row,))
        (judgment,) = judge_output(ToolOutput("log", (reading,)), spec)
        assert judgment.verdict == "normal"


@given(st.text(max_size=300))
def test_text_of_strangers_is_refused_in_a_sentence(text: str) -> None:
    for head in (
        "",
        "#  size count type redop time algbw busbw error\n",
        "# OSU MPI Bandwidth Test\n",
    ):
        try:
            parse_tool_output(head + text, "log")
        except UserMistake as mistake:
            assert "log" in str(mistake)
