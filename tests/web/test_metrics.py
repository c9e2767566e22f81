"""Metrics for Prometheus, and the dashboard that shows them."""

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import ROOT
from tests.web.conftest import Serve
from tests.web.seed import EVIL, seed_share

DASHBOARD = ROOT / "src" / "gpuyard" / "web" / "grafana" / "dashboard.json"


def test_prometheus_can_read_the_metrics(serve: Serve, share: Path) -> None:
    text = serve().get("/metrics").text
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    states = {s.labels["state"]: s.value for s in families["gpuyard_gpus"]}
    assert states == {"leased": 5, "idle": 2, "kept": 1}
    leased = {s.labels["user"]: s.value for s in families["gpuyard_leased_gpus"]}
    assert leased["alice"] == 4
    (waiting,) = families["gpuyard_queue_requests"]
    assert waiting.value == 1
    (violation,) = families["gpuyard_violations"]
    assert violation.labels["kind"] == "idle"
    (cost,) = families["gpuyard_cloud_cost_usd_per_hour"]
    assert cost.value > 0
    assert len(families["gpuyard_gpu_utilization_ratio"]) == 8


def test_names_cannot_break_the_format(serve: Serve, tmp_path: Path, monkeypatch: object) -> None:
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(tmp_path / "share"))  # type: ignore[attr-defined]
    seed_share(tmp_path / "share", names=('a"b\\c\nd', EVIL, "carol"))
    text = serve().get("/metrics").text
    users = {
        sample.labels["user"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "user" in sample.labels
    }
    assert EVIL in users


def test_the_dashboard_uses_metrics_that_exist(serve: Serve, share: Path) -> None:
    text = serve().get("/metrics").text
    exported = set(re.findall(r"# TYPE (\w+)", text))
    dashboard = json.loads(DASHBOARD.read_text())
    used = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"gpuyard_\w+", target["expr"])
    }
    assert used
    assert used <= exported
