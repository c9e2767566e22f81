"""One cluster through the official Python client: each call with a time-out, each fault as a sentence.

What the client says of a fault has the request's headers or the server's whole answer, so none of it is shown but
the message of the API's Status, and of that nothing that is a secret of the kubeconfig.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, MissingRequirement, NoAnswer, UserMistake, quoted
from gpuyard.jobs.engines.kubernetes.draft import Manifest
from gpuyard.jobs.engines.kubernetes.kinds.base import Resource
from gpuyard.printable import printable
from gpuyard.web_client import json_of

IN_CLUSTER = "in-cluster"
CALL_SECONDS = (5.0, 20.0)  # to connect, and for the answer
_QUIET_SECONDS = 300.0  # of a log that is followed: then its pod is looked at again
_LONGEST_MESSAGE = 500
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MEANINGS = {
    401: "the cluster does not take your credentials (401); log in again, as for kubectl",
    403: "your account may not do that (403)",
    404: "there is no such object (404)",
    409: "there is another object of that name (409)",
    422: "the cluster finds the manifest invalid (422)",
    429: "the cluster has too much to do (429); try again later",
}
_NO_TLS = "speaks no TLS, or with a certificate that your kubeconfig does not trust"


class ApiRefused(GpuyardError):
    """The API answered no."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        meaning = _MEANINGS.get(status, f"the cluster answered with status {status}")
        super().__init__(f"{meaning}: {message}" if message else meaning)


class Quiet(NoAnswer):
    """A log that is followed had nothing new for long; it may still."""


def why_unusable() -> str | None:
    """What is missing here; asks no cluster."""
    if find_spec("kubernetes") is None:
        return "the Python package kubernetes is not installed; pip install 'gpuyard[kubernetes]'"
    if not _config_files() and not _in_a_pod():
        return "there is no kubeconfig: neither $KUBECONFIG nor ~/.kube/config is a file"
    return None


def default_place(context: str | None) -> tuple[str | None, str]:
    """The context's own name and its namespace; where there is no kubeconfig, what Kubernetes takes."""
    if why_unusable() is not None:
        return context, "default"
    if not _config_files():
        return IN_CLUSTER, _pod_namespace()
    contexts, current = _read_config(
        lambda config: config.list_kube_config_contexts(_config_argument())
    )
    by_name = {each["name"]: each for each in contexts}
    chosen = current if context is None else by_name.get(context)
    if chosen is None:
        known = ", ".join(sorted(by_name)) or "none"
        raise UserMistake(f"your kubeconfig has no context {quoted(str(context))}; it has: {known}")
    return chosen["name"], chosen["context"].get("namespace") or "default"


class KubernetesCluster:
    """One that can be asked."""

    def __init__(self, context: str | None) -> None:
        if (reason := why_unusable()) is not None:
            raise MissingRequirement(reason)
        from kubernetes import client
        from urllib3.util.retry import Retry

        configuration = client.Configuration()
        if _config_files() and context != IN_CLUSTER:
            _read_config(
                lambda config: config.load_kube_config(
                    _config_argument(),
                    context=context,
                    client_configuration=configuration,
                    persist_config=False,
                )
            )
        else:
            _read_config(lambda config: config.load_incluster_config(configuration))
        configuration.retries = Retry(total=0)  # a time-out is for the call, not for each of four
        self.address = str(configuration.host)
        self._configuration = configuration
        api = client.ApiClient(configuration)
        self._core: Any = client.CoreV1Api(api)
        self._custom: Any = client.CustomObjectsApi(api)

    def create(self, resource: Resource, namespace: str, manifest: Manifest) -> Manifest:
        """Fields that the API does not know are refused, not dropped."""
        strict = {"field_manager": "gpuyard", "field_validation": "Strict"}
        return self._asked(resource, "create", namespace, body=manifest, **strict)

    def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        """Raises `ApiRefused` with 404 where there is none."""
        return self._asked(resource, "get" if resource.group else "read", namespace, name=name)

    def found(self, resource: Resource, namespace: str, selector: str) -> list[Manifest]:
        """Those with these labels."""
        items = self._asked(resource, "list", namespace, label_selector=selector).get("items")
        return list(items or [])

    def delete(self, resource: Resource, namespace: str, name: str) -> None:
        """With everything that belongs to it, which is gone before it is."""
        self._asked(
            resource, "delete", namespace, name=name, body={"propagationPolicy": "Foreground"}
        )

    def pods(self, namespace: str, selector: str) -> tuple[list[Manifest], str]:
        """In the order in which they were made, and the version from which to watch."""
        answer = self._json(
            lambda: self._core.list_namespaced_pod(
                namespace,
                label_selector=selector,
                _preload_content=False,
                _request_timeout=CALL_SECONDS,
            )
        )
        items = answer.get("items") or []
        made = sorted(
            items,
            key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]),
        )
        return made, str(answer.get("metadata", {}).get("resourceVersion", ""))

    def wait_for_pods(self, namespace: str, selector: str, version: str, seconds: int) -> None:
        """Until one of them changes, or so long."""
        answer = self._answer(
            lambda: self._core.list_namespaced_pod(
                namespace,
                label_selector=selector,
                resource_version=version,
                watch=True,
                timeout_seconds=seconds,
                _preload_content=False,
                _request_timeout=(CALL_SECONDS[0], float(seconds + 5)),
            )
        )
        try:
            next(iter(answer.stream(amt=1)), None)
        except _network_faults() as fault:
            raise _no_answer(self.address, fault) from None
        finally:
            answer.close()

    def log(
        self, namespace: str, pod: str, container: str, *, follow: bool, previous: bool = False
    ) -> Iterator[bytes]:
        """In pieces, each line with its moment first; `previous`: of the container's start before."""
        from urllib3.exceptions import ReadTimeoutError

        answer = self._answer(
            lambda: self._core.read_namespaced_pod_log(
                pod,
                namespace,
                container=container,
                follow=follow,
                previous=previous,
                timestamps=True,
                _preload_content=False,
                _request_timeout=(CALL_SECONDS[0], _QUIET_SECONDS if follow else CALL_SECONDS[1]),
            )
        )
        try:
            yield from answer.stream(amt=None if follow else 65_536)
        except ReadTimeoutError:
            raise Quiet(f"{self.address} sends no more of a log") from None
        except _network_faults() as fault:
            raise _no_answer(self.address, fault) from None
        finally:
            answer.close()

    def _asked(self, resource: Resource, verb: str, namespace: str, **words: Any) -> Manifest:
        given = {**words, "_preload_content": False, "_request_timeout": CALL_SECONDS}
        if resource.group:
            call = getattr(self._custom, f"{verb}_namespaced_custom_object")
            where = {
                "group": resource.group,
                "version": resource.version,
                "namespace": namespace,
                "plural": resource.plural,
            }
        else:
            call = getattr(self._core, f"{verb}_namespaced_{resource.kind.lower()}")
            where = {"namespace": namespace}
        return self._json(lambda: call(**where, **given))

    def _json(self, call: Callable[[], Any]) -> Manifest:
        answer = self._answer(call)
        try:
            document = json_of(answer.data)
        except _network_faults() as fault:
            raise _no_answer(self.address, fault) from None
        except ValueError:
            raise NoAnswer(f"{self.address} does not answer like Kubernetes") from None
        if not isinstance(document, dict):
            raise NoAnswer(f"{self.address} does not answer like Kubernetes")
        return document

    def _answer(self, call: Callable[[], Any]) -> Any:
        """A response that says yes."""
        from kubernetes.client.exceptions import ApiException

        try:
            answer = call()
        except ApiException as fault:  # older clients raise it, newer ones give the response
            raise self._refused(fault.status or 0, fault.body) from None
        except _network_faults() as fault:
            raise _no_answer(self.address, fault) from None
        if not 200 <= answer.status <= 299:
            try:
                body = answer.data
            except _network_faults():
                body = b""
            raise self._refused(answer.status, body)
        return answer

    def _refused(self, status: int, body: Any) -> GpuyardError:
        if status == 0:  # what some versions of the client make of a fault of TLS
            return NoAnswer(f"{self.address} {_NO_TLS}", sent=False)
        try:
            said = json_of(body)
        except (TypeError, ValueError):
            said = None
        message = str(said.get("message") or "") if isinstance(said, Mapping) else ""
        for secret in self._secrets():
            message = message.replace(secret, "…")
        return ApiRefused(status, printable(message)[:_LONGEST_MESSAGE])

    def _secrets(self) -> list[str]:
        """As they are now: a login is renewed while one waits."""
        configuration = self._configuration
        credentials = [*(configuration.api_key or {}).values(), configuration.password]
        words = [word for value in credentials for word in str(value or "").split()]
        return [word for word in words if len(word) > 7]  # "Bearer" and the like are no secret


def _no_answer(address: str, fault: Exception) -> NoAnswer:
    """In words, and whether the request can have been heard."""
    from urllib3 import exceptions

    if isinstance(fault, exceptions.MaxRetryError) and fault.reason is not None:
        fault = fault.reason
    match fault:
        case exceptions.SSLError():
            return NoAnswer(f"{address} {_NO_TLS}", sent=False)
        case exceptions.NameResolutionError():
            return NoAnswer(f"{address}: no host has this name", sent=False)
        case exceptions.NewConnectionError():  # in some versions a kind of the next
            return NoAnswer(f"{address}: nobody listens there", sent=False)
        case exceptions.ConnectTimeoutError():
            return NoAnswer(f"{address} can't be reached in {CALL_SECONDS[0]:g} s", sent=False)
        case exceptions.TimeoutError():
            return NoAnswer(f"{address} does not answer in {CALL_SECONDS[1]:g} s")
    return NoAnswer(f"{address} broke off ({type(fault).__name__})")


def _network_faults() -> tuple[type[Exception], ...]:
    from urllib3.exceptions import HTTPError

    return (HTTPError, OSError)


def _read_config(read: Callable[[Any], Any]) -> Any:
    """A reader's own words may quote the file, which has secrets."""
    from kubernetes import config
    from yaml import YAMLError

    try:
        return read(config)
    except config.ConfigException as mistake:
        raise UserMistake(f"your kubeconfig can't be used: {printable(str(mistake))}") from None
    except (YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as fault:
        files = ", ".join(map(str, _config_files())) or str(_SERVICE_ACCOUNT)
        raise UserMistake(f"{files}: this is no kubeconfig ({type(fault).__name__})") from None


def _config_files() -> list[Path]:
    """As kubectl looks for them."""
    named = os.environ.get("KUBECONFIG")
    paths = named.split(os.pathsep) if named else ["~/.kube/config"]
    return [path for path in (Path(each).expanduser() for each in paths if each) if path.is_file()]


def _config_argument() -> str:
    return os.pathsep.join(map(str, _config_files()))


def _in_a_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and (_SERVICE_ACCOUNT / "token").is_file()


def _pod_namespace() -> str:
    try:
        return (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return "default"
