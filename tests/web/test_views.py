"""The views of answers: the same documents as the commands', and nothing that a stranger could read or run."""

import csv
import html
import io
import json
import re
import shlex
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest

from gpuyard.web.auth import Identity
from gpuyard.web.views.scale import ScaleQuery, predict_view
from tests.conftest import ROOT, Cli
from tests.web.conftest import Serve, Site

TOPOLOGY = ROOT / "tests" / "hardware" / "recorded"


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """One server for all views of this file; it has neither a share nor results."""
    import os
    import subprocess
    import sys

    home = tmp_path_factory.mktemp("home")
    process = subprocess.Popen(
        (sys.executable, "-m", "gpuyard", "serve", "--port", "0"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "GPUYARD_HOME": str(home), "GPUYARD_SHARE_DIR": str(home / "share")},
    )
    assert process.stdout is not None
    started = Site(process.stdout.readline().strip(), process)
    request.addfinalizer(started.stop)
    return started


@pytest.mark.parametrize(
    ("view", "query", "command"),
    [
        ("scale", {}, ("predict", "resnet50", "--on", "2x8xa100-sxm4-80gb@1x100G")),
        (
            "scale",
            {"workload": "bert-large", "cluster": "2xdgx-a100", "batch": "8", "compress": "fp16"},
            ("predict", "bert-large", "--on", "2xdgx-a100", "--batch", "8", "--compress", "fp16"),
        ),
        (
            "scale",
            {"cluster": "10x1xgtx-1080-ti@1G", "compare": "10x1xgtx-1080-ti@10G"},
            ("predict", "resnet50", "--on", "10x1xgtx-1080-ti@1G", "--on", "10x1xgtx-1080-ti@10G"),
        ),
        (
            "scale",
            {"workload": "llama-3-8b", "cluster": "2xdgx-h100", "layout": "tp=2"},
            ("predict", "llama-3-8b", "--on", "2xdgx-h100", "--layout", "tp=2", "--why"),
        ),
        (
            "scale",
            {
                "workload": "llama-3-8b",
                "cluster": "dgx-h100",
                "micro_batch": "2",
                "global_batch": "64",
            },
            (
                *("predict", "llama-3-8b", "--on", "dgx-h100", "--why"),
                *("--micro-batch", "2", "--global-batch", "64"),
            ),
        ),
        ("machine", {"machine": "dgx-a100"}, ("topo", "--on", "dgx-a100")),
        ("machine", {"preset": "dual-root"}, ("topo", "--preset", "dual-root")),
        ("room", {"machine": "dgx-h100", "nodes": "4"}, ("facility", "4xdgx-h100")),
        ("room", {"machine": "dgx-h100", "nodes": "65"}, ("facility", "65xdgx-h100")),
        (
            "scale",
            {"cluster": "256x8xh100@400G"},
            ("predict", "resnet50", "--on", "256x8xh100@400G"),
        ),
        (
            "buy",
            {"budget": "20000", "researchers": "2", "years": "2", "tariff": "0.3"},
            (
                *("plan", "--why", "--budget", "$20000", "--researchers", "2"),
                *("--model", "resnet50", "--horizon", "2 years", "--tariff", "$0.3/kWh"),
            ),
        ),
        (
            "buy/cost",
            {},
            (
                *("cost", "--rent", "$20/h", "--buy", "$250000", "--tornado"),
                *("--utilization", "60%", "--horizon", "3 years", "--power", "10 kW"),
                *("--tariff", "$0.2/kWh", "--staff-hours", "8", "--staff", "$60/h"),
            ),
        ),
        (
            "buy/hybrid",
            {"gpus": "32", "rent": "2"},
            (
                *(
                    "cost",
                    "hybrid",
                    "--load",
                    "working-hours",
                    "--gpus",
                    "32",
                    "--base-share",
                    "10%",
                ),
                *("--rent", "$2/h", "--buy", "$30000", "--horizon", "3 years"),
                *("--power", "1 kW", "--tariff", "$0.2/kWh"),
            ),
        ),
    ],
)
def test_a_view_gives_the_commands_document(
    site: Site, cli: Cli, view: str, query: dict[str, str], command: tuple[str, ...]
) -> None:
    text = urlencode(query)
    shown = site.get(f"/{view}.json?{text}")
    assert shown.status == 200, shown.text
    assert shown.json() == json.loads(cli(*command, "--json").stdout)
    page = site.get(f"/{view}?{text}")
    assert page.status == 200
    assert f"/{view}.json" in page.text
    assert "How was this computed?" in page.text
    assert f"gpuyard {command[0]}" in page.text


def test_empty_fields_of_a_plan_are_left_out(site: Site) -> None:
    query = "runs=default&hours=any&samples=&epochs="
    shown = site.get(f"/buy?budget=20000&researchers=2&{query}").text
    assert "gpuyard plan --why --budget &#39;$20000&#39; --researchers 2 --model resnet50" in shown
    assert 'name="samples" type="number" min="1" value=""' in shown


def test_the_commands_shown_are_real(site: Site, cli: Cli) -> None:
    """Run a command line as the fold-out shows it."""
    text = site.get("/buy/cost?rent=3&buy=8000&years=2").text
    found = re.search(r'<pre class="line"[^>]*><code>(gpuyard cost [^<]*)</code>', text)
    assert found is not None
    words = shlex.split(html.unescape(found[1]))[1:]
    assert (
        json.loads(cli(*words, "--json").stdout)
        == site.get("/buy/cost.json?rent=3&buy=8000&years=2").json()
    )


@pytest.mark.parametrize("workload", ["resnet50", "llama-3-8b"])
def test_other_users_get_predictions_without_the_servers_own_figures(workload: str) -> None:
    query = ScaleQuery(workload=workload, cluster="dgx-h100")
    result, _ = predict_view(query, Identity(65_534, "nobody", is_admin=False))
    assert result.answer.document["predictions"]


@pytest.mark.parametrize("protocol", ["tcp", "rdma"])
def test_more_network_is_never_slower(site: Site, protocol: str) -> None:
    def predict(**query: int) -> float:
        text = urlencode({"machines": 4, "protocol": protocol, **query})
        return float(
            site.get(f"/scale.json?{text}").json()["predictions"][-1]["samples_per_second"]
        )

    rates = [predict(network=rate) for rate in (1, 10, 25, 50, 100, 200, 400, 800)]
    assert rates == sorted(rates)
    ports = [predict(ports=count) for count in (1, 2, 4, 8)]
    assert ports == sorted(ports)
    assert ports[0] < ports[-1]


def test_a_fragment_has_only_the_result(site: Site) -> None:
    fragment = site.get("/scale?machines=4", HX_Request="true").text
    assert "<html" not in fragment
    assert "samples/s" in fragment
    assert "data-charts" in fragment
    restored = {"HX_Request": "true", "HX_History_Restore_Request": "true"}
    assert "<html" in site.get("/scale?machines=4", **restored).text, "Back needs the whole page"


def test_a_pasted_config_is_predicted(site: Site) -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
    }  # fmt: skip
    query = urlencode({"spec": json.dumps(config), "cluster": "dgx-h100"})
    assert site.get(f"/scale.json?{query}").json()["predictions"]


def test_a_pasted_spec_is_predicted(site: Site) -> None:
    query = urlencode({"spec": "name: mine\nmodel: resnet50\nbatch_per_gpu: 64\n"})
    assert site.get(f"/scale.json?{query}").json()["workload"] == "mine"


@pytest.mark.parametrize("compare", ["", "2x8xh100@400G"])
def test_measured_figures_are_on_top_of_the_predicted_ones(site: Site, compare: str) -> None:
    figure = "{gpu: a100-sxm4-80gb, gpus: 8, batch_per_gpu: 64, samples_per_second: 15000}"
    spec = f"name: mine\nmodel: resnet50\nbatch_per_gpu: 64\nmeasured:\n  - {figure}\n"
    page = site.get(f"/scale?{urlencode({'spec': spec, 'compare': compare})}").text
    found = re.search(r"<script[^>]*data-charts[^>]*>(.*?)</script>", page, re.DOTALL)
    assert found is not None
    (throughput,) = (c for c in json.loads(found[1]) if c["id"] == "chart-throughput")
    (option,) = throughput["options"].values()
    (series,) = (series for series in option["series"] if series["name"] == "measured")
    assert ["8", 15000] in series["data"]
    lines = [other for other in option["series"] if other.get("lineStyle")]
    assert series["itemStyle"]["color"] not in {line["lineStyle"].get("color") for line in lines}


@pytest.mark.parametrize(
    "spec",
    [
        "name: evil\nmodel: os:getcwd\n",
        "name: evil\nmodel: gpt:make\nbatch_per_gpu: 1\n",
        "name: evil\nmodel: /etc/passwd\n",
        "name: evil\nmodel: ../../config.json\n",
        "name: evil\nmodel: resnet50\ndataset: {samples: 10, source: /etc}\n",
        "name: evil\nmodel: resnet50\ndataset: {samples: 10, source: 'os:listdir'}\n",
        "name: !!python/object/apply:os.system ['true']\nmodel: resnet50\n",
        "a: &a [*a]\n",
        "[" * 5000,
        "{" * 5000,
        '{"model_type": "llama"}',
        "x" * 12_001,
    ],
)
def test_code_files_and_deep_texts_are_refused(site: Site, spec: str) -> None:
    reply = site.get(f"/scale.json?{urlencode({'spec': spec})}")
    assert reply.status in (400, 422), reply.text
    assert "error" in reply.json()


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/scale.json?cluster=/etc/passwd", "reads no files"),
        ("/scale.json?cluster=examples/apollo.cluster.yaml", "reads no files"),
        ("/scale.json?compare=../x.yaml", "reads no files"),
        ("/scale.json?workload=examples/gpt.workload.yaml", "model"),
        ("/machine.json?machine=pyproject.toml", "reads no files"),
        ("/scale.json?workload=resnet5", "resnet50"),
        ("/scale.json?machines=0", "machines"),
        ("/scale.json?layout=tp=x&workload=llama-3-8b", "tp"),
        ("/room.json?country=Nowhereland", "Nowhereland"),
        ("/machine.json?matrix=nonsense", "pasted"),
        ("/job.json?handle=nonsense", "handle"),
        ("/results.json?kind=nonsense", "kind"),
        ("/history.json?since=yesterdayish", "yesterdayish"),
    ],
)
def test_mistakes_are_explained(site: Site, path: str, named: str) -> None:
    reply = site.get(path)
    assert reply.status in (400, 422), (reply.status, reply.text)
    assert named in reply.json()["error"]
    page = site.get(path.replace(".json", ""))
    assert page.status == reply.status
    assert 'role="alert"' in page.text


def test_a_pasted_matrix_is_drawn(site: Site) -> None:
    matrix = next(
        path for path in sorted(TOPOLOGY.rglob("*.txt")) if "GPU0" in path.read_text()[:200]
    )
    reply = site.get(f"/machine?{urlencode({'matrix': matrix.read_text()})}")
    assert reply.status == 200, reply.text
    assert "<svg" in reply.text


def test_the_bill_of_materials_is_a_table(site: Site, cli: Cli) -> None:
    rows = list(csv.DictReader(io.StringIO(site.get("/room/bill.csv?nodes=2").text)))
    document = json.loads(cli("facility", "2xdgx-h100", "--json").stdout)
    assert len(rows) == len(document["bill"])


def test_empty_views_say_what_to_run(site: Site) -> None:
    for path, command in (
        ("/", "gpuyard share setup"),
        ("/jobs", "gpuyard submit"),
        ("/history", "gpuyard share setup"),
        ("/results", "gpuyard bench train"),
    ):
        assert command in site.get(path).text, path


def test_history_counts_gpu_hours(serve: Serve, share: Path, cli: Cli) -> None:
    history = serve()
    shown = history.get("/history.json?since=1+day").json()
    told = json.loads(cli("usage", "--since", "1 day", "--json").stdout)
    assert [row["name"] for row in shown["by_user"]] == [row["name"] for row in told["by_user"]]
    assert shown["leases"][0]["waiting_seconds"] >= 0
    rows = list(csv.DictReader(io.StringIO(history.get("/history.csv?since=1+day").text)))
    assert [row["user"] for row in rows] == [row["user"] for row in shown["leases"]]
    today = datetime.now().date()
    page = history.get(f"/history?begin={today}&end={today}")
    assert page.status == 200
    assert history.get("/history?begin=&end=").status == 200, "an empty field is no day"
    assert "chart-use-over-time" in page.text
    assert f"--until {today + timedelta(1)}" in page.text
    assert history.get(f"/history.json?end={today - timedelta(1)}&since=").json()["leases"] == []
    (hour,) = shown["over_time"][-1:]
    assert 0 <= hour["computing_gpus"] <= hour["leased_gpus"] <= shown["gpus"]


def test_more_gpus_are_simulated_on_the_history_of_the_range(
    serve: Serve, empty_share: Path, cli: Cli
) -> None:
    for _ in range(2):
        cli("lease", "2", "--", "true")
    site = serve()
    shown = site.get("/history.json?since=1+day&more=4").json()["what_if"]
    command = ("simulate", "--format", "leases", "--since", "1 day", "--what-if", "add 4 gpus")
    assert shown == json.loads(cli(*command, "--json").stdout)
    assert [(row["case"], row["gpus"]) for row in shown["what_if"]] == [
        ("as it is", 4), ("add 4 gpus", 8),
    ]  # fmt: skip
    page = html.unescape(site.get("/history?since=1+day&more=4").text)
    assert "With 4 more GPUs" in page
    assert f"gpuyard {shlex.join(command)}" in page
    yesterday = datetime.now().date() - timedelta(1)
    older = site.get(f"/history.json?since=&begin={yesterday}&end={yesterday}&more=4").json()
    assert "what_if" not in older


def test_a_result_reopens_and_downloads_as_one_file(
    serve: Serve, make_measurement: object, home: Path
) -> None:
    from gpuyard.files import results_file
    from gpuyard.measure.store import ResultsStore

    measurement = make_measurement()  # type: ignore[operator]
    ResultsStore(results_file()).add(measurement)
    site = serve()
    assert measurement.id in site.get("/results").text
    empty = site.get("/results?kind=links").text
    assert 'href="/results?kind=train">train</a> (1)' in empty
    page = site.get(f"/result?id={measurement.id}")
    assert page.status == 200
    assert site.get(f"/result.json?id={measurement.id}").json()["id"] == measurement.id
    file = site.get(f"/result/page.html?id={measurement.id}")
    assert "attachment" in file.headers["content-disposition"]
    assert "<html" in file.text


def test_a_studys_report_reopens_and_downloads(
    serve: Serve, cli: Cli, home: Path, tmp_path: Path
) -> None:
    study = ROOT / "tests" / "answers" / "predicted.study.yaml"
    cli("study", str(study), "--output-dir", str(tmp_path / "study"))
    site = serve()
    found = re.search(
        r'href="(/report\?id=([0-9a-f]{12}))">Predicted alone</a>', site.get("/results").text
    )
    assert found is not None
    page = site.get(found[1])
    assert page.status == 200
    assert "spoken-digits-conv" in page.text
    file = site.get(f"/report/page.html?id={found[2]}").text
    assert file == (tmp_path / "study" / "report.html").read_text()


def test_a_kept_report_reopens_and_downloads(
    serve: Serve, cli: Cli, home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "cost.html"
    shown = cli("cost", "--rent", "$20/h", "--buy", "$250000", "--html", str(file), "--json")
    site = serve()
    found = re.search(r'href="(/report\?id=([0-9a-f]{12}))"', site.get("/results").text)
    assert found is not None
    page = site.get(found[1])
    assert page.status == 200
    assert "data-charts" in page.text
    assert "gpuyard cost --rent &#39;$20/h&#39; --buy &#39;$250000&#39; --html" in page.text
    assert site.get(f"/report.json?id={found[2]}").json() == json.loads(shown.stdout)
    assert site.get(f"/report/page.html?id={found[2]}").text == file.read_text()
    assert site.get("/report?id=0123456789ab").status == 400
