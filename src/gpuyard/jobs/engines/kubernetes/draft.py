"""What every kind of object is made from: the job with its options, and the names that Kubernetes lets it have.

Kubernetes reads `$(NAME)` in commands, arguments and variables as a reference to a variable, and `$$` as a dollar
sign, so each dollar sign is written twice. Names and labels have small alphabets: an object is called after the
job and its UUID, the UUID is a label, and what the job is really called is an annotation.
"""

import json
import os
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from gpuyard.errors import UserMistake, quoted
from gpuyard.jobs.job import Job
from gpuyard.share.service.caller import user_name
from gpuyard.specs.engines.kubernetes import KubernetesOptions

UUID_LABEL = "gpuyard/job-id"
USER_LABEL = "gpuyard/user"
NAME_ANNOTATION = "gpuyard/name"
JOB_ANNOTATION = "gpuyard/job"
GPUS_ANNOTATION = "gpuyard/gpus"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"

_MOST_ANNOTATION_BYTES = 250_000  # the API server takes 262,144 of all annotations together
_LONGEST_SLUG = (
    30  # operators append "-worker-12" and the like, and a host's name has at most 63 characters
)
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Draft:
    """One job on its way to an object."""

    job: Job
    options: KubernetesOptions
    namespace: str

    @property
    def name(self) -> str:
        """Of its objects: a DNS label that begins with a letter."""
        return f"{_slug(self.job.name) or 'job'}-{self.job.uuid[:8]}"

    @property
    def nodes(self) -> int:
        return self.job.spec.nodes or 1

    @property
    def gpus(self) -> int:
        """Nothing here grows later, so it asks for the most that the job can use."""
        return self.job.spec.gpus.max

    @property
    def gpus_per_node(self) -> int:
        return self.job.gpus_per_node(self.gpus)

    @property
    def labels(self) -> dict[str, str]:
        """By which its objects and pods are found."""
        return {UUID_LABEL: self.job.uuid, USER_LABEL: this_user()}

    @property
    def queue_labels(self) -> dict[str, str]:
        """By which Kueue takes an object over; of the object, never of its pods."""
        if self.options.queue is None:
            return {}
        priority = self.options.priority_class
        classes = {} if priority is None else {PRIORITY_LABEL: priority}
        return {QUEUE_LABEL: self.options.queue, **classes}

    @property
    def suspended(self) -> dict[str, bool]:
        """Kueue lets it start."""
        return {} if self.options.queue is None else {"suspend": True}

    @property
    def deadline(self) -> dict[str, int]:
        """Only where the job has a limit: its deadline is a wish, and no reason to kill it."""
        limit = self.job.spec.time_limit
        return {} if limit is None else {"activeDeadlineSeconds": max(1, round(limit))}

    def metadata(self) -> Manifest:
        """Of the object that is the job."""
        document = json.dumps(self.job.document(), ensure_ascii=False)
        size = len(document.encode()) + len(self.job.name.encode())
        if size > _MOST_ANNOTATION_BYTES:
            raise UserMistake(
                f"this job is too long for Kubernetes: {size:,} bytes of command, names and variables, "
                f"and at most {_MOST_ANNOTATION_BYTES:,} fit; put long texts into files"
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
        """The job's variables."""
        variables = self.job.environment(self.gpus)
        for name in variables:
            if not _VARIABLE.fullmatch(name):
                raise UserMistake(
                    f"env: Kubernetes takes no variable called {quoted(name)}: a name has letters, digits, "
                    "'_', '-' and '.', and no digit first"
                )
        return [{"name": name, "value": escaped(value)} for name, value in variables.items()]

    def command(self) -> list[str]:
        """Started as it is; no shell has a part in it."""
        return [escaped(word) for word in self.job.spec.command]


def escaped(text: str) -> str:
    """What Kubernetes reads as exactly this text."""
    return text.replace("$", "$$")


def this_user() -> str:
    """The account here as a label's value, by which one's own jobs are found among those of a namespace."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", user_name(os.getuid())).strip("-")
    return name[:63].rstrip("-") or "user"


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode()
    words = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    if words and not words[0].isalpha():
        words = f"job-{words}"
    return words[:_LONGEST_SLUG].rstrip("-")
