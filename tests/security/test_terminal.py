"""Text from strangers is never interpreted by a terminal, as markup, or by a spreadsheet."""

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.files import results_file
from gpuyard.measure.store import ResultsStore
from tests.conftest import ROOT, Cli, MakeMeasurement

CLIPBOARD = "a\x1b]52;c;QUFBQQ==\x07b\x9b31m\u202ez"
MARKUP = "resnet [fp16] [/v2]"
CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)

WORKLOAD = f"name: '{MARKUP}'\nmodel: resnet50\ndataset: {{samples: 1000}}\n"
CLUSTER = (
    f"name: '{MARKUP}'\nnodes: 2\nmachine: {{gpu: t4, gpus: 4}}\nnetwork: {{link: ethernet-10g}}\n"
)
SITE = f"name: '{MARKUP}'\nkind: room\ncircuits: [{{voltage: 208 V, amps: 30 A, receptacle: nema-l6-30r}}]\n"
PLAN = f"name: '{MARKUP}'\nworkload: w.workload.yaml\nruns_per_month: 10\nsearch: {{nodes: [1], batch: [32]}}\n"
OFFERS = f"name: '{MARKUP}'\noffers:\n- {{name: '{MARKUP}', kind: on-demand, price: $1/h}}\n- {{name: 'b [/]', kind: own, hardware: $900}}\n"
STUDY = f"name: '{MARKUP}'\nworkloads: [w.workload.yaml]\nmeasure:\nclusters: [{{cluster: c.cluster.yaml}}]\n"
SWEEP = f"name: '{MARKUP}'\nworkloads: [w.workload.yaml]\nnodes: [1]\n"
TOPOLOGY = f"""
\tGPU0\tGPU1\tNIC0\tCPU Affinity
GPU0\t X \tPIX\tSYS\t0-7
GPU1\tPIX\t X \tSYS\t0-7
NIC0\tSYS\tSYS\t X

NIC Legend:
  NIC0: [/{CLIPBOARD}]
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "[red]files"
    folder.mkdir()
    for name, text in {
        "w.workload": WORKLOAD, "c.cluster": CLUSTER, "s.site": SITE, "p.plan": PLAN,
        "o.offers": OFFERS, "t.study": STUDY, "x.sweep": SWEEP,
    }.items():  # fmt: skip
        (folder / f"{name}.yaml").write_text(text)
    (folder / "topo.txt").write_text(TOPOLOGY)
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "predict w.workload.yaml --on c.cluster.yaml --gpus 1,8",
        "predict w.workload.yaml --on c.cluster.yaml --gpus 8 --why",
        "plan p.plan.yaml --html [bold]out.html",
        "playbook p.plan.yaml",
        "cost compare o.offers.yaml --html [bold]out.html",
        "facility c.cluster.yaml --site s.site.yaml --html [bold]out.html",
        "facility c.cluster.yaml --site s.site.yaml",
        "study t.study.yaml --output-dir [bold]out",
        "topo --from topo.txt --gpu t4",
        "topo --from topo.txt --gpu t4 --svg [bold]out.svg",
        "bench train w.workload.yaml --dry-run",
        "bench sweep x.sweep.yaml --dry-run",
    ],
)
def test_a_name_that_looks_like_markup_is_shown_as_it_is(cli: Cli, files: Path, line: str) -> None:
    done = cli(*line.split(), cwd=files)
    assert not CONTROL_CHARACTERS.search(done.stdout + done.stderr)
    if "topo" not in line and "playbook" not in line:
        assert MARKUP in done.stdout + done.stderr or "[bold]out" in done.stderr


@pytest.mark.parametrize(
    "line",
    ["results list", "results show", "results export", "results export --as csv", "calibrate --dry-run"],
)  # fmt: skip
@pytest.mark.parametrize("name", [MARKUP, CLIPBOARD])
def test_a_malicious_name_does_not_hide_other_results(
    cli: Cli, make_measurement: MakeMeasurement, line: str, name: str
) -> None:
    nasty = make_measurement(1, workload=name)
    provenance = nasty.provenance.model_copy(update={"host": name, "cpu_model": name})
    store = ResultsStore(results_file())
    for measurement in (nasty.model_copy(update={"provenance": provenance}), make_measurement(2)):
        store.add(measurement)
    arguments = [*line.split(), *(["000000000001"] if "show" in line else [])]
    done = cli(*arguments, status=0 if "calibrate" not in line else 1)
    assert not CONTROL_CHARACTERS.search(done.stdout + done.stderr)
    if "calibrate" not in line:
        assert (MARKUP if name == MARKUP else "]52;c;") in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", CLIPBOARD, "--on", "dgx-a100"],
        ["predict", "resnet50", "--on", CLIPBOARD],
        ["predict", "resnet50", "--on", "dgx-a100", "--gpus", CLIPBOARD],
        ["predict", "resnet50", "--on", "dgx-a100", f"--{CLIPBOARD}"],
        ["predict", "resnet50", "--on", "dgx-a100", "--precision", CLIPBOARD],
        ["predict", "resnet50", "--on", "dgx-a100", CLIPBOARD],
        [CLIPBOARD],
        ["catalog", CLIPBOARD],
        ["catalog", "gpus", CLIPBOARD],
        ["cost", "--rent", CLIPBOARD, "--buy", "$1"],
        ["results", "show", CLIPBOARD],
        ["results", "list", "--workload", CLIPBOARD],
        ["results", "export", "--output", f"none/../{CLIPBOARD}/a.csv"],
        ["lab", "down", "--name", CLIPBOARD],
        ["topo", "--from", CLIPBOARD],
        ["cost", "hybrid", "--demand", f"{CLIPBOARD}.csv", "--rent", "$1/h", "--buy", "$9"],
        ["cost", "--rent", "$1/h", "--buy", "$9", "--html", f"{CLIPBOARD}.html"],
        ["schema", CLIPBOARD],
        ["bench", "train", "resnet50", "--hosts", CLIPBOARD],
        ["--debug", "catalog", "gpus", CLIPBOARD],
    ],
    ids=lambda arguments: " ".join(a for a in arguments if a.isascii() and a.isprintable())[:40],
)
def test_control_characters_in_arguments_are_not_printed(
    gpuyard_process: Cli, tmp_path: Path, arguments: list[str]
) -> None:
    """Some commands succeed and print where they wrote; none prints the control characters."""
    done = subprocess.run(
        [sys.executable, "-m", "gpuyard", *arguments],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    output = (done.stdout + done.stderr).decode()
    assert output
    assert not CONTROL_CHARACTERS.search(output)
    assert ("Traceback" in output) == ("--debug" in arguments)


def test_control_characters_do_not_reach_a_real_terminal(make_measurement: MakeMeasurement) -> None:
    ResultsStore(results_file()).add(make_measurement(1, workload=CLIPBOARD))
    for arguments in (["results", "list"], ["predict", CLIPBOARD, "--on", "dgx-a100"], [CLIPBOARD]):
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "gpuyard", *arguments]
        with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave) as process:
            os.close(slave)
            output = b""
            while chunk := _read(master):
                output += chunk
            process.wait(60)
        os.close(master)
        assert "]52;c;" in output.decode()
        assert b"\x1b]52" not in output
        assert b"\x07" not in output
        assert "\x9b" not in output.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""


def test_a_csv_export_contains_no_formula(cli: Cli, make_measurement: MakeMeasurement) -> None:
    names = [
        '=HYPERLINK("http://x/","y")',
        "+1+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(1)",
        "\t=1",
        "plain",
    ]
    store = ResultsStore(results_file())
    for number, name in enumerate(names):
        store.add(make_measurement(number, workload=name))
    text = cli("results", "export", "--as", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["workload"] for row in rows] == [
        *(f"'{name}" for name in names[:4]), "'\t=1", "plain",
    ]  # fmt: skip
    assert rows[0]["samples_per_second"] == "100.125"
    exported = [json.loads(line) for line in cli("results", "export").stdout.splitlines()]
    assert [record["workload"] for record in exported] == names


def test_a_bill_of_materials_contains_no_formula(cli: Cli, files: Path) -> None:
    done = cli("facility", "c.cluster.yaml", "--site", "s.site.yaml", "--csv", cwd=files)
    for row in csv.reader(io.StringIO(done.stdout)):
        assert not any(cell.startswith(("=", "+", "@")) for cell in row)


def test_only_the_escaping_console_is_used() -> None:
    """Rich's own console parses markup and passes escapes through, so no other module may create one."""
    source = ROOT / "src" / "gpuyard"
    console_use = re.compile(r"\bConsole\(|\bprint\(|typer\.(echo|secho)|click\.echo|\.from_markup")
    for path in source.rglob("*.py"):
        if path != source / "report" / "terminal.py":
            assert not console_use.search(
                path.read_text(encoding="utf-8").replace(".console.print(", "")
            ), path
