"""A server on loopback that implements the part of the Kubernetes API that gpuyard uses.

It keeps objects, checks each manifest against the API's schemas, and answers as an API server does: lists, Status
objects, watches, and logs in chunks. No controller runs; tests set the status of objects. Answers have the form of the API
reference and of recorded ones. `page not found` as plain text is an API server's answer for a group that it does not have.
"""

import base64
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpuyard.jobs.engines.kubernetes.draft import user_label
from tests.jobs.engines.kubernetes.schema_check import problems

TOKEN = "kubeconfig-token-of-the-tests-3f9a"  # noqa: S105
_PATH = re.compile(
    r"/apis?/(?P<group>(?:[\w.]+/)?v\w+)/namespaces/(?P<namespace>[\w-]+)/(?P<plural>\w+)"
    r"(?:/(?P<name>[\w.-]+)(?P<log>/log)?)?"
)
_KNOWN = {
    "batch/v1/jobs", "apps/v1/statefulsets", "v1/services", "v1/secrets", "v1/pods",
    "trainer.kubeflow.org/v1alpha1/trainjobs", "kubeflow.org/v1/pytorchjobs",
}  # fmt: skip
Fault = Callable[["Handler"], bool]
"""A function that may answer instead of the server, and returns whether it did."""


@dataclass
class Log:
    """The output of a pod; `open` while more may follow."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    open: bool = False
    breaks: list[int] = field(default_factory=list)
    """After how many lines item successive connection breaks."""


class ApiServer(ThreadingHTTPServer):
    """The server of one cluster."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.changed = threading.Condition()
        self.objects: dict[str, dict[str, Any]] = {}
        """Objects by path below /api or /apis."""
        self.logs: dict[str, Log] = {}
        """Logs by pod; "before POD" is that of the container's previous start."""
        self.kinds = set(_KNOWN)
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.stopping = False
        self.git_version = "v1.33.1"
        self._version = 100

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def version(self) -> str:
        self._version += 1
        return str(self._version)

    def put(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """Create or change an object as a controller does."""
        with self.changed:
            document["metadata"]["resourceVersion"] = self.version()
            self.objects[path] = document
            self.changed.notify_all()
        return document

    def one(self, plural: str) -> dict[str, Any]:
        """Return the only object of this kind."""
        (manifest,) = [item for path, item in self.objects.items() if f"/{plural}/" in path]
        return manifest

    def set_status(self, plural: str, **status: Any) -> None:
        """Set the status of the only object of this kind."""
        (path,) = [path for path in self.objects if f"/{plural}/" in path]
        self.put(path, {**self.objects[path], "status": status})

    def add_pod(
        self, name: str, job_id: str, phase: str = "Running", **more: Any
    ) -> dict[str, Any]:
        """Add a pod to a job, with one container whose state fits the phase."""
        container = more.pop("container", "job")
        states = {
            "Pending": {"waiting": {"reason": "ContainerCreating"}},
            "Running": {"running": {"startedAt": "2026-11-16T09:00:05Z"}},
            "Succeeded": {"terminated": {"exitCode": 0, "reason": "Completed",
                                         "finishedAt": "2026-11-16T09:10:00Z"}},
            "Failed": {"terminated": {"exitCode": more.pop("exit_code", 1), "reason": "Error",
                                      "finishedAt": more.pop("finished", "2026-11-16T09:10:00Z")}},
        }  # fmt: skip
        state = more.pop("state", states.get(phase, {}))
        labels = {"gpuyard/job-id": job_id, "gpuyard/user": user_label(), **more.pop("labels", {})}
        spec = {} if phase == "Pending" else {"nodeName": more.pop("node", "gpu-node-1")}
        status = {
            "phase": phase,
            "startTime": "2026-11-16T09:00:00Z",
            "containerStatuses": [
                {"name": container, "restartCount": more.pop("restarts", 0), "state": state}
            ],
            **more,
        }
        metadata = {
            "name": name,
            "namespace": "team",
            "labels": labels,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": "2026-11-16T09:00:00Z",
        }
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }
        return self.put(f"v1/namespaces/team/pods/{name}", document)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""

    def stop(self) -> None:
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """The handler of one request."""

    protocol_version = "HTTP/1.1"
    server: ApiServer

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing on the terminal."""

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def _answer(self, handle: Callable[[], None]) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(size)) if size else None
        with self.server.changed:
            self.server.requests.append((self.command, self.path))
            self.server.changed.notify_all()
        split = urlsplit(self.path)
        self.query = {key: values[-1] for key, values in parse_qs(split.query).items()}
        for fault in list(self.server.faults):
            if fault(self):
                return
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.refuse(401, "Unauthorized", "Unauthorized")
            return
        if split.path == "/version/":
            self.document(200, {"major": "1", "minor": "x", "gitVersion": self.server.git_version})
            return
        match = _PATH.fullmatch(split.path)
        if match is None or f"{match['group']}/{match['plural']}" not in self.server.kinds:
            self.plain(404, "404 page not found\n")
            return
        self.where, self.name, self.is_log = match, match["name"], bool(match["log"])
        self.folder = f"{match['group']}/namespaces/{match['namespace']}/{match['plural']}"
        handle()

    def _get(self) -> None:
        if self.is_log:
            self._log()
        elif self.name is not None:
            manifest = self.server.objects.get(f"{self.folder}/{self.name}")
            self._not_found() if manifest is None else self.document(200, manifest)
        elif self.query.get("watch") == "True" or self.query.get("watch") == "true":
            self._watch()
        else:
            metadata = {"resourceVersion": str(self.server._version)}
            self.document(200, {"kind": "List", "metadata": metadata, "items": self._select()})

    def _select(self) -> list[dict[str, Any]]:
        selectors = [part.partition("=") for part in self.query.get("labelSelector", "").split(",")]
        return [
            item
            for path, item in sorted(self.server.objects.items())
            if path.startswith(f"{self.folder}/")
            and all(
                key in item["metadata"].get("labels", {})
                and (not equals or item["metadata"]["labels"][key] == value)
                for key, equals, value in selectors
                if key
            )
        ]

    def _post(self) -> None:
        manifest = self.body
        assert isinstance(manifest, dict)
        path = f"{self.folder}/{manifest['metadata']['name']}"
        if errors := problems(manifest):
            message = (
                f"{manifest['kind']}.{self.where['group'].partition('/')[0]} is invalid: {errors}"
            )
            self.refuse(422, "Invalid", message)
            return
        with self.server.changed:
            if path in self.server.objects:
                name = manifest["metadata"]["name"]
                message = f'{self.where["plural"]}.{self.where["group"].partition("/")[0]} "{name}" already exists'
                self.refuse(409, "AlreadyExists", message)
                return
            created = json.loads(json.dumps(manifest))
            for key, value in created.pop("stringData", {}).items():
                created.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()
            created["metadata"] |= {
                "uid": str(uuid.uuid4()),
                "creationTimestamp": "2026-11-16T09:00:00Z",
                "resourceVersion": self.server.version(),
            }
            self.server.objects[path] = created
            self.server.changed.notify_all()
        self.document(201, created)

    def _delete(self) -> None:
        with self.server.changed:
            deleted = self.server.objects.pop(f"{self.folder}/{self.name}", None)
            if deleted is None:
                self._not_found()
                return
            for path, item in list(self.server.objects.items()):
                owners = item["metadata"].get("ownerReferences", [])
                if any(owner["uid"] == deleted["metadata"]["uid"] for owner in owners):
                    del self.server.objects[path]
            self.server.changed.notify_all()
        self.document(
            200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        )

    def _watch(self) -> None:
        """Send one event for each object that is newer than the version, until the time is over."""
        until = time.monotonic() + float(self.query.get("timeoutSeconds", "30"))
        since = int(self.query.get("resourceVersion") or 0)
        self._begin("application/json")
        while not self.server.stopping and time.monotonic() < until:
            with self.server.changed:
                fresh = [
                    item
                    for item in self._select()
                    if int(item["metadata"]["resourceVersion"]) > since
                ]
                if not fresh:
                    self.server.changed.wait(timeout=max(0.0, until - time.monotonic()))
                    continue
                since = max(int(item["metadata"]["resourceVersion"]) for item in fresh)
            for item in fresh:
                self._chunk(json.dumps({"type": "MODIFIED", "object": item}) + "\n")
        self._chunk("")

    def _log(self) -> None:
        pod = self.server.objects.get(f"{self.folder}/{self.name}")
        if pod is None:
            self._not_found()
            return
        if pod["status"]["phase"] == "Pending":
            message = f'container "job" in pod "{self.name}" is waiting to start: ContainerCreating'
            self.refuse(400, "BadRequest", message)
            return
        before = "before " if self.query.get("previous") in {"True", "true"} else ""
        log = self.server.logs.setdefault(before + str(self.name), Log())
        follow = self.query.get("follow") in {"True", "true"}
        self._begin("text/plain")
        breaks = log.breaks.pop(0) if log.breaks else None
        for index, (time_text, line) in enumerate(self._lines(log, follow=follow)):
            if index == breaks:
                self.close_connection = True
                self.connection.close()
                return
            self._chunk(f"{time_text} {line}\n")
        self._chunk("")

    def _lines(self, log: Log, *, follow: bool) -> Iterator[tuple[str, str]]:
        index = 0
        while True:
            with self.server.changed:
                while index >= len(log.lines):
                    if not (follow and log.open) or self.server.stopping:
                        return
                    self.server.changed.wait(timeout=1)
                line = log.lines[index]
            index += 1
            yield line

    def _not_found(self) -> None:
        group = self.where["group"].rpartition("/")[0]
        resource = f"{self.where['plural']}{'.' if group else ''}{group}"
        self.refuse(404, "NotFound", f'{resource} "{self.name}" not found')

    def refuse(self, code: int, reason: str, message: str) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self.document(code, {**status, "message": message, "reason": reason, "code": code})

    def document(self, code: int, document: dict[str, Any]) -> None:
        self._whole(code, json.dumps(document), "application/json")

    def plain(self, code: int, text: str) -> None:
        self._whole(code, text, "text/plain; charset=utf-8")

    def _whole(self, code: int, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, text: str) -> None:
        content = text.encode()
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()
