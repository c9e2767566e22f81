"""ECharts is the file that the registry served, with its licences beside it."""

import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "gpuyard" / "report" / "vendor" / "echarts"


def test_the_checksum_matches() -> None:
    recorded = tomllib.loads((FOLDER / "VERSION.toml").read_text(encoding="utf-8"))
    script = (FOLDER / "echarts.min.js").read_bytes()
    assert hashlib.sha256(script).hexdigest() == recorded["sha256"]
    assert recorded["licence"] == "Apache-2.0"


def test_the_licences_travel_along() -> None:
    assert "Apache License" in (FOLDER / "LICENSE").read_text(encoding="utf-8")
    assert "Apache ECharts" in (FOLDER / "NOTICE").read_text(encoding="utf-8")
    assert "Redistribution" in (FOLDER / "LICENSE-zrender").read_text(encoding="utf-8")
    assert (FOLDER / "LICENSE-d3").exists()


def test_the_script_that_vendors_pins_the_same_version() -> None:
    script = ROOT / "scripts" / "vendor_echarts.py"
    checked = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_inlining_it_cannot_end_the_script_element() -> None:
    script = (FOLDER / "echarts.min.js").read_text(encoding="utf-8").lower()
    assert "</script" not in script
    assert "<!--" not in script
