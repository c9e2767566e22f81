"""Measurements as runs of MLflow, through the REST API of its tracking server.

See https://mlflow.org/docs/latest/api_reference/rest-api.html. A measurement is one run with its id as a tag: exported again,
it is found by that, and what is there already is left. Who stops it half-way has a run that is not
finished, which the next export completes; MLflow keeps a figure once that is logged twice.
"""

import base64
import http.client
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuyard import __version__
from gpuyard.errors import GpuyardError, UserMistake, quoted
from gpuyard.measure.export.runs import ExportedRun
from gpuyard.printable import printable
from gpuyard.web_client import opener, read_json

_TIMEOUT_SECONDS = 30
_MOST_ANSWER_BYTES = 20_000_000
_MOST_METRICS = 1000  # of one request, as the server has it
_LONGEST_PARAMETER, _LONGEST_TAG = 500, 5000
_ID_TAG = "gpuyard.id"
ADDRESS_VARIABLE = "MLFLOW_TRACKING_URI"


class MlflowServer:
    """One tracking server. Name and password, or a token, are those of MLflow's own client."""

    def __init__(self, address: str, environment: Mapping[str, str] = os.environ) -> None:
        try:
            parts = urllib.parse.urlsplit(address)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
            parts = urllib.parse.SplitResult("", "", "", "", "")
        if parts.scheme not in ("http", "https") or not host:
            raise UserMistake(
                f"expected the address of an MLflow server like http://localhost:5000, got {quoted(_hidden(address))}"
            )
        shown_host = f"[{host}]" if ":" in host else host
        place = f"{parts.scheme}://{shown_host}{f':{port}' if port else ''}"
        self.address = place + parts.path.rstrip("/")
        """Without a password that was written into it."""
        self._headers = {"Content-Type": "application/json", "User-Agent": f"gpuyard/{__version__}"}
        name = urllib.parse.unquote(parts.username or "") or environment.get(
            "MLFLOW_TRACKING_USERNAME", ""
        )
        password = urllib.parse.unquote(parts.password or "") or environment.get(
            "MLFLOW_TRACKING_PASSWORD", ""
        )
        if name:
            both = base64.b64encode(f"{name}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {both}"
        elif token := environment.get("MLFLOW_TRACKING_TOKEN"):
            self._headers["Authorization"] = f"Bearer {token}"

    def export(self, runs: Sequence[ExportedRun], experiment: str) -> tuple[int, int]:
        """How many were added, and how many were there already."""
        try:
            return self._export(runs, experiment)
        except (KeyError, TypeError, AttributeError) as error:
            raise GpuyardError(
                f"{self.address}: what it answers is not MLflow's: {printable(str(error))}"
            ) from error

    def _export(self, runs: Sequence[ExportedRun], experiment: str) -> tuple[int, int]:
        experiment_id = self._experiment(experiment)
        known = dict(self._known(experiment_id))
        added = 0
        for run in runs:
            run_id, finished = known.get(run.id, ("", False))
            if finished:
                continue
            self._write(run, run_id or self._create(run, experiment_id))
            added += 1
        return added, len(runs) - added

    def _experiment(self, name: str) -> str:
        query = urllib.parse.urlencode({"experiment_name": name})
        found = self._ask("GET", f"experiments/get-by-name?{query}", none_where_missing=True)
        if found is None:
            return str(self._ask("POST", "experiments/create", {"name": name})["experiment_id"])
        experiment = found["experiment"]
        if experiment.get("lifecycle_stage") == "deleted":
            raise UserMistake(
                f"the experiment {quoted(name)} of {self.address} is deleted; restore it, or name another with --experiment"
            )
        return str(experiment["experiment_id"])

    def _known(self, experiment_id: str) -> Iterator[tuple[str, tuple[str, bool]]]:
        """Every exported run: our id → theirs, and whether it is complete."""
        page = None
        while True:
            asked: dict[str, Any] = {"experiment_ids": [experiment_id], "max_results": 1000}
            if page:
                asked["page_token"] = page
            found = self._ask("POST", "runs/search", asked)
            for run in found.get("runs", []):
                tags = {tag["key"]: tag["value"] for tag in run.get("data", {}).get("tags", [])}
                if _ID_TAG in tags:
                    info = run["info"]
                    yield tags[_ID_TAG], (info["run_id"], info.get("status") == "FINISHED")
            page = found.get("next_page_token")
            if not page:
                return

    def _create(self, run: ExportedRun, experiment_id: str) -> str:
        tags = {_ID_TAG: run.id, "gpuyard.kind": run.kind, "gpuyard.workload": run.workload}
        asked = {
            "experiment_id": experiment_id,
            "run_name": run.name,
            "start_time": _milliseconds(run.started),
            "tags": [{"key": key, "value": value[:_LONGEST_TAG]} for key, value in tags.items()],
        }
        return str(self._ask("POST", "runs/create", asked)["run"]["info"]["run_id"])

    def _write(self, run: ExportedRun, run_id: str) -> None:
        parameters = [
            {"key": key, "value": str(value)[:_LONGEST_PARAMETER]}
            for key, value in run.facts.items()
        ]
        self._ask("POST", "runs/log-batch", {"run_id": run_id, "params": parameters})
        metrics = list(_metrics(run))
        for start in range(0, len(metrics), _MOST_METRICS):
            some = metrics[start : start + _MOST_METRICS]
            self._ask("POST", "runs/log-batch", {"run_id": run_id, "metrics": some})
        done = {"run_id": run_id, "status": "FINISHED", "end_time": _milliseconds(run.ended)}
        self._ask("POST", "runs/update", done)

    def _ask(
        self, method: str, path: str, asked: Any = None, *, none_where_missing: bool = False
    ) -> Any:
        request = urllib.request.Request(  # noqa: S310 - http or https, by __init__
            f"{self.address}/api/2.0/mlflow/{path}",
            data=None if asked is None else json.dumps(asked).encode(),
            headers=self._headers,
            method=method,
        )
        try:
            with opener().open(request, timeout=_TIMEOUT_SECONDS) as answer:
                said = read_json(answer, _MOST_ANSWER_BYTES)
        except urllib.error.HTTPError as refused:
            with refused:
                code, message = _refusal(refused)
            if none_where_missing and code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise GpuyardError(f"{self.address}: MLflow says {refused.code}: {message}") from None
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise GpuyardError(
                f"{self.address}: no answer of an MLflow server: {printable(str(reason))}"
            ) from None
        if not isinstance(said, dict):
            raise GpuyardError(f"{self.address}: no answer of an MLflow server")
        return said


def _metrics(run: ExportedRun) -> Iterator[dict[str, Any]]:
    elapsed = 0.0
    for moment in run.moments:
        elapsed += moment.seconds
        for key, value in moment.values.items():
            at = _milliseconds(run.started + elapsed)
            yield {"key": f"window/{key}", "value": value, "timestamp": at, "step": moment.step}
    for key, value in run.figures.items():
        yield {"key": key, "value": value, "timestamp": _milliseconds(run.ended), "step": 0}


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _refusal(refused: urllib.error.HTTPError) -> tuple[str, str]:
    try:
        said = read_json(refused, _MOST_ANSWER_BYTES)
        return str(said["error_code"]), quoted(str(said["message"]))
    except (ValueError, KeyError, TypeError, OSError):
        return "", printable(str(refused.reason))


def _hidden(address: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", address)
