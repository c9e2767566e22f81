"""Exports measurements as runs to an MLflow tracking server, with MLflow's own client (mlflow-skinny).

Each measurement becomes one run that carries the measurement's id as a tag. Exporting again skips the runs that are
already finished and completes those that an interrupted export left unfinished.
"""

import contextlib
import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake, quote
from gpuyard.measure.export.runs import ExportedRun
from gpuyard.printable import make_printable
from gpuyard.web_client import call_within

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

SERVER_VARIABLE = "MLFLOW_TRACKING_URI"
_ID_TAG = "gpuyard.id"
_RUNS_PER_PAGE = 1000
_MAX_MESSAGE_CHARACTERS = 500
_MAX_SECONDS, _MAX_SECONDS_PER_RUN = 120.0, 10.0
_CLIENT_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
}
_CLIENT_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # gpuyard contacts only the server that the user names
    "MLFLOW_ALLOW_HTTP_REDIRECTS": "false",  # a redirect could pass the password to another host
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


@dataclass(frozen=True)
class MlflowServer:
    """A tracking server. If the URL has no credentials, MLflow's client looks up its own."""

    url: str
    """The URL without credentials, safe to print."""
    username: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def from_url(cls, url: str) -> "MlflowServer":
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urllib.parse.urlsplit(""), None, None
        if parts.scheme not in ("http", "https") or not host:
            raise UserMistake(
                "expected the URL of an MLflow server like http://localhost:5000, "
                f"got {quote(_hide_credentials(url))}"
            )
        bracketed_host = f"[{host}]" if ":" in host else host
        address = f"{parts.scheme}://{bracketed_host}{f':{port}' if port else ''}"
        return cls(
            address + parts.path.rstrip("/"),
            urllib.parse.unquote(parts.username or ""),
            urllib.parse.unquote(parts.password or ""),
        )

    def export(self, runs: Sequence[ExportedRun], experiment: str) -> tuple[int, int]:
        """Write the runs, and return how many were added and how many existed already."""
        with _set_environment(self._client_environment()):
            try:
                from google.protobuf.json_format import ParseError
                from mlflow import MlflowClient
                from mlflow.exceptions import MlflowException
            except ModuleNotFoundError as error:
                raise MissingRequirement(
                    "exporting to MLflow needs its client, which is not installed: "
                    "pip install 'gpuyard[mlflow]'"
                ) from error
            client = MlflowClient(tracking_uri=self.url)
            try:
                return call_within(
                    _MAX_SECONDS + len(runs) * _MAX_SECONDS_PER_RUN,
                    lambda: export_runs(client, runs, experiment),
                )
            except (MlflowException, ParseError, TimeoutError) as error:
                message = make_printable(str(error))
                if len(message) > _MAX_MESSAGE_CHARACTERS:
                    message = message[:_MAX_MESSAGE_CHARACTERS] + "…"
                raise GpuyardError(
                    f"{self.url}: the MLflow export failed: {message}; "
                    "check that this is the URL of a running MLflow server"
                ) from None

    def _client_environment(self) -> dict[str, str]:
        credentials = {
            "MLFLOW_TRACKING_USERNAME": self.username,
            "MLFLOW_TRACKING_PASSWORD": self.password,
        }
        return {
            **{name: os.environ.get(name, value) for name, value in _CLIENT_DEFAULTS.items()},
            **_CLIENT_SETTINGS,
            **(credentials if self.username else {}),
        }


def export_runs(
    client: "MlflowClient", runs: Sequence[ExportedRun], experiment: str
) -> tuple[int, int]:
    """Write the runs, and return how many were added and how many existed already."""
    experiment_id = _find_or_create_experiment(client, experiment)
    existing = _find_exported(client, experiment_id)
    added = 0
    for run in runs:
        run_id, finished = existing.get(run.id, ("", False))
        if not finished:
            _write(client, run, run_id or _create(client, run, experiment_id))
            added += 1
    return added, len(runs) - added


def _find_or_create_experiment(client: "MlflowClient", name: str) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return client.create_experiment(name)
    if experiment.lifecycle_stage == "deleted":
        raise UserMistake(
            f"the MLflow experiment {quote(name)} is deleted; restore it, or choose another with --experiment"
        )
    if not experiment.experiment_id:
        raise GpuyardError(
            f"the MLflow server returned no id for the experiment {quote(name)}; check its URL"
        )
    return experiment.experiment_id


def _find_exported(client: "MlflowClient", experiment_id: str) -> dict[str, tuple[str, bool]]:
    """Map each exported measurement's id to its MLflow run id and whether that run is finished."""
    exported = {}
    page_token = None
    while True:
        page = client.search_runs(
            [experiment_id], max_results=_RUNS_PER_PAGE, page_token=page_token
        )
        for run in page:
            if _ID_TAG in run.data.tags:
                finished = run.info.status == "FINISHED"
                exported[run.data.tags[_ID_TAG]] = (run.info.run_id, finished)
        page_token = page.token
        if not page_token:
            return exported


def _create(client: "MlflowClient", run: ExportedRun, experiment_id: str) -> str:
    created = client.create_run(
        experiment_id,
        start_time=_milliseconds(run.started),
        tags={_ID_TAG: run.id, "gpuyard.kind": run.kind, "gpuyard.workload": run.workload},
        run_name=run.name,
    )
    return str(created.info.run_id)


def _write(client: "MlflowClient", run: ExportedRun, run_id: str) -> None:
    from mlflow.entities import Param

    parameters = [Param(key, str(value)) for key, value in run.parameters.items()]
    client.log_batch(run_id, metrics=list(_metrics(run)), params=parameters)
    client.set_terminated(run_id, status="FINISHED", end_time=_milliseconds(run.ended))


def _metrics(run: ExportedRun) -> "Iterator[Metric]":
    from mlflow.entities import Metric

    elapsed = 0.0
    for moment in run.history:
        elapsed += moment.seconds
        timestamp = _milliseconds(run.started + elapsed)
        for key, value in moment.values.items():
            yield Metric(f"window/{key}", value, timestamp, moment.step)
    for key, value in run.metrics.items():
        yield Metric(key, value, _milliseconds(run.ended), 0)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


@contextlib.contextmanager
def _set_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, from which MLflow's client reads its settings, and restore them afterwards."""
    previous = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _hide_credentials(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", url)
