"""The input of all object kinds: the job with its options, and names that Kubernetes accepts.

Kubernetes reads `$(NAME)` in commands, arguments, and variables as a reference and `$$` as a dollar sign, so every dollar
sign is doubled. Names and labels allow few characters: an object is named after the job and its UUID, the UUID is a label,
and the job's exact name is an annotation.
"""

import json
import os
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from gpuyard.errors import UserMistake, quote
from gpuyard.jobs.engines.kubernetes.server import CURRENT_VERSION, Feature, ServerVersion
from gpuyard.jobs.job import Job
from gpuyard.share.caller import user_name
from gpuyard.specs.engines.kubernetes import KubernetesOptions

UUID_LABEL = "gpuyard/job-id"
USER_LABEL = "gpuyard/user"
NAME_ANNOTATION = "gpuyard/name"
JOB_ANNOTATION = "gpuyard/job"
GPUS_ANNOTATION = "gpuyard/gpus"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"

_MAX_ANNOTATION_BYTES = 250_000  # the API server accepts 262,144 for all annotations together
_MAX_SLUG = (
    30  # operators append "-worker-12" and the like, and a host name has at most 63 characters
)
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Draft:
    """A job with its Kubernetes options, from which manifests are created."""

    job: Job
    options: KubernetesOptions
    namespace: str
    server: ServerVersion = CURRENT_VERSION

    def require(self, feature: Feature, key: str, remedy: str) -> None:
        """Raise UserMistake if the cluster's server is too old for what a key of the job file asks for."""
        if self.server.lacks(feature):
            raise UserMistake(
                f"{key}: the cluster runs Kubernetes {self.server.text}, which has no {feature}; {remedy}"
            )

    @property
    def name(self) -> str:
        """The name of its objects: a DNS label that begins with a letter."""
        return f"{_create_slug(self.job.name) or 'job'}-{self.job.uuid[:8]}"

    @property
    def nodes(self) -> int:
        return self.job.spec.nodes or 1

    @property
    def gpus(self) -> int:
        """The maximum that the job can use, since its number of GPUs cannot change later."""
        return self.job.spec.gpus.max

    @property
    def gpus_per_node(self) -> int:
        return self.job.gpus_per_node(self.gpus)

    @property
    def labels(self) -> dict[str, str]:
        """Labels that identify its objects and pods."""
        return {UUID_LABEL: self.job.uuid, USER_LABEL: user_label()}

    @property
    def queue_labels(self) -> dict[str, str]:
        """Labels with which Kueue manages an object; only for the object, never for its pods."""
        if self.options.queue is None:
            return {}
        priority = self.options.priority_class
        classes = {} if priority is None else {PRIORITY_LABEL: priority}
        return {QUEUE_LABEL: self.options.queue, **classes}

    @property
    def suspended(self) -> dict[str, bool]:
        """The field that suspends the object until Kueue starts it."""
        return {} if self.options.queue is None else {"suspend": True}

    @property
    def deadline(self) -> dict[str, int]:
        """The field for the time limit; a job's deadline is only a goal and must not kill it."""
        limit = self.job.spec.time_limit
        return {} if limit is None else {"activeDeadlineSeconds": max(1, round(limit))}

    def metadata(self) -> Manifest:
        """Return the metadata of the job's own object."""
        document = json.dumps(self.job.document(), ensure_ascii=False)
        size = len(document.encode()) + len(self.job.name.encode())
        if size > _MAX_ANNOTATION_BYTES:
            raise UserMistake(
                f"this job is too large for Kubernetes: command, names, and variables have {size:,} bytes, but at most "
                f"{_MAX_ANNOTATION_BYTES:,} fit; move long texts to files"
            )
        return {
            "name": self.name,
            "namespace": self.namespace,
            "labels": {**self.labels, **self.queue_labels},
            "annotations": {
                NAME_ANNOTATION: self.job.name,
                GPUS_ANNOTATION: str(self.gpus),
                JOB_ANNOTATION: document,
            },
        }

    def environment(self) -> list[Manifest]:
        """Return the job's variables; raise UserMistake if Kubernetes does not accept a name."""
        variables = self.job.environment(self.gpus)
        for name in variables:
            if not _VARIABLE.fullmatch(name):
                raise UserMistake(
                    f"env: Kubernetes does not accept the variable name {quote(name)}: use letters, digits, '_', "
                    "'-', and '.', and do not begin with a digit"
                )
        return [{"name": name, "value": escape(value)} for name, value in variables.items()]

    def command(self) -> list[str]:
        """Return the command, which runs without a shell."""
        return [escape(word) for word in self.job.spec.command]


def escape(text: str) -> str:
    """Escape a text so that Kubernetes reads it exactly."""
    return text.replace("$", "$$")


def user_label() -> str:
    """Return the local account as a label value, which identifies the user's jobs in a namespace."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", user_name(os.getuid())).strip("-")
    return name[:63].rstrip("-") or "user"


def _create_slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode()
    words = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    if words and not words[0].isalpha():
        words = f"job-{words}"
    return words[:_MAX_SLUG].rstrip("-")
