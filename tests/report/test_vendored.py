"""Tests of the vendored ECharts: its checksum, version, and licenses."""

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
    assert recorded["license"] == "Apache-2.0"


def test_the_licenses_are_included() -> None:
    assert "Apache License" in (FOLDER / "LICENSE").read_text(encoding="utf-8")
    assert "Apache ECharts" in (FOLDER / "NOTICE").read_text(encoding="utf-8")
    assert "Redistribution" in (FOLDER / "LICENSE-zrender").read_text(encoding="utf-8")
    assert (FOLDER / "LICENSE-d3").exists()


def test_the_vendoring_script_pins_the_same_version() -> None:
    script = ROOT / "scripts" / "vendor_scripts.py"
    checked = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_the_inlined_script_cannot_close_its_element() -> None:
    script = (FOLDER / "echarts.min.js").read_text(encoding="utf-8").lower()
    assert "</script" not in script
    assert "<!--" not in script
