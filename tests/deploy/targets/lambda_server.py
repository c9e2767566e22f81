"""A server with Lambda Cloud's API, including its failures.

Paths, keys, states, and error codes come from public clients, and from models generated from its OpenAPI description (1.10).
The codes for 429 and 502 are our own, and nothing depends on them.
"""

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "secret_gpuyard-test_0123456789abcdef"
LAUNCH_KEYS = {
    "region_name", "instance_type_name", "ssh_key_names", "file_system_names", "file_system_mounts", "hostname",
    "name", "image", "user_data", "tags", "firewall_rulesets",
}  # fmt: skip
_REGIONS = {"us-east-1": "Virginia, USA", "us-west-1": "California, USA"}
_CENTS = {"gpu_1x_a10": 75, "gpu_8x_a100": 1032}


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass
class Account:
    """The state of the service, and the faults that it simulates."""

    capacity: dict[str, int] = field(default_factory=lambda: {"us-east-1": 100, "us-west-1": 0})
    quota: int = 100
    instances: dict[str, dict[str, Any]] = field(default_factory=dict)
    launches: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    throttled: int = 0
    """The number of requests that are rejected with 429 first."""
    faults: int = 0
    """The number of requests that are answered with 502 first."""
    boots_after: int = 2
    boots_as: str = "active"
    lose_answers: bool = False
    """A launch succeeds, but its response is lost."""
    page: int = 100
    launched: threading.Event = field(default_factory=threading.Event)
    terminated: threading.Event = field(default_factory=threading.Event)
    lock: Any = field(default_factory=threading.RLock)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def live(self) -> list[str]:
        """Return the names of instances that cost money."""
        with self.lock:
            return sorted(
                instance["name"]
                for instance in self.instances.values()
                if instance["status"] in ("booting", "active", "unhealthy")
            )

    def terminate_by_hand(self, name: str) -> None:
        with self.lock:
            for instance in self.instances.values():
                if instance["name"] == name:
                    instance["status"] = "terminated"

    def types(self) -> dict[str, Any]:
        regions = [
            {"name": name, "description": _REGIONS[name]} for name, n in self.capacity.items() if n
        ]
        return {name: _type(name) | {"regions_with_capacity_available": regions} for name in _CENTS}

    def launch(self, body: dict[str, Any]) -> dict[str, Any]:
        unknown = set(body) - LAUNCH_KEYS
        missing = {"region_name", "instance_type_name", "ssh_key_names"} - set(body)
        if unknown or missing or len(body["ssh_key_names"]) != 1 or len(body.get("name", "")) > 64:
            raise Refused(400, "global/invalid-parameters", "Invalid request data.")
        if body["instance_type_name"] not in _CENTS or body["region_name"] not in _REGIONS:
            raise Refused(404, "global/object-does-not-exist", "Specified type does not exist.")
        if body["ssh_key_names"] != ["laptop"]:
            raise Refused(404, "global/object-does-not-exist", "Specified key does not exist.")
        if len(self.live()) >= self.quota:
            raise Refused(400, "global/quota-exceeded", "Quota exceeded.")
        if self.capacity[body["region_name"]] < 1:
            code = "instance-operations/launch/insufficient-capacity"
            raise Refused(400, code, "Not enough capacity to fulfill launch request.")
        self.capacity[body["region_name"]] -= 1
        number = next(self.numbers)
        identity = f"{number:032x}"
        self.launches.append(body)
        self.instances[identity] = {
            "id": identity,
            "name": body.get("name"),
            "status": "booting",
            "ssh_key_names": body["ssh_key_names"],
            "file_system_names": [],
            "region": {
                "name": body["region_name"],
                "description": _REGIONS[body["region_name"]],
            },
            "instance_type": _type(body["instance_type_name"])["instance_type"],
            "jupyter_token": "0" * 32,
            "looked": 0,
        }
        return {"instance_ids": [identity]}

    def observe(self, identity: str) -> dict[str, Any]:
        instance = self.instances.get(identity)
        if instance is None or instance["status"] == "terminated":
            raise Refused(404, "global/object-does-not-exist", "Specified instance does not exist.")
        instance["looked"] += 1
        if instance["status"] == "booting" and instance["looked"] >= self.boots_after:
            instance["status"] = self.boots_as
            if self.boots_as == "active":
                instance["ip"] = f"127.77.0.{int(identity, 16)}"
                instance["private_ip"] = f"10.19.0.{int(identity, 16)}"
        elif instance["status"] == "terminating":
            instance["status"] = "terminated"
            self.terminated.set()
        return {key: value for key, value in instance.items() if key != "looked"}

    def terminate(self, instance_ids: list[str]) -> dict[str, Any]:
        for identity in instance_ids:
            if identity not in self.instances:
                raise Refused(404, "global/object-does-not-exist", "No such instance.")
        for identity in instance_ids:
            self.instances[identity]["status"] = "terminating"
        self.terminated.set()
        return {"terminated_instances": [self.instances[identity] for identity in instance_ids]}


def _type(name: str) -> dict[str, Any]:
    gpus = int(name.split("_")[1][:-1])
    specs = {"vcpus": 30 * gpus, "memory_gib": 200 * gpus, "storage_gib": 1400, "gpus": gpus}
    return {
        "instance_type": {
            "name": name,
            "description": name,
            "gpu_description": name,
            "price_cents_per_hour": _CENTS[name],
            "specs": specs,
        }
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    account: Account

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        account = self.account
        try:
            with account.lock:
                data, more = self._data(json.loads(body) if body else {})
        except Refused as refused:
            error = {"code": refused.code, "message": refused.message, "suggestion": ""}
            self._send(refused.status, {"error": error})
            return
        if self.path.endswith("/launch"):
            account.launched.set()
            if account.lose_answers:
                self.close_connection = True
                self.connection.close()
                return
        self._send(200, {"data": data, **more})

    def _data(self, body: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        account = self.account
        path, _, query = self.path.removeprefix("/api/v1/").partition("?")
        account.requests.append(f"{self.command} {path}")
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            raise Refused(
                401, "global/invalid-api-key", "API key was invalid, expired, or deleted."
            )
        if account.faults > 0:
            account.faults -= 1
            raise Refused(502, "global/internal-error", "Bad gateway.")
        if account.throttled > 0:
            account.throttled -= 1
            raise Refused(429, "global/too-many-requests", "Too many requests.")
        what = f"{self.command} {path.split('/')[0]}"
        if what == "GET instance-types":
            return account.types(), {}
        if what == "GET ssh-keys":
            return [{"id": "1", "name": "laptop", "public_key": "ssh-ed25519 AAAA"}], {}
        if path == "instances" and self.command == "GET":
            first = int(query.removeprefix("page_token=") or 0)
            listed = [
                instance
                for instance in account.instances.values()
                if instance["status"] != "terminated"
            ]
            more = (
                {"page_token": str(first + account.page)} if listed[first + account.page :] else {}
            )
            return listed[first : first + account.page], more
        if what == "GET instances":
            return account.observe(path.split("/")[1]), {}
        if path == "instance-operations/launch":
            return account.launch(body), {}
        if path == "instance-operations/terminate":
            return account.terminate(body["instance_ids"]), {}
        raise Refused(404, "global/object-does-not-exist", "No such path.")

    def _send(self, status: int, document: Any) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving() -> Iterator[tuple[Account, str]]:
    account = Account()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("H", (_Handler,), {"account": account}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield account, f"http://127.0.0.1:{server.server_port}/api/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
