"""`gpuyard_gpulab_job`: a job on imec's GPULab, which has no official Terraform provider."""

import json
from typing import Any

from tf import types
from tf.schema import Schema

from gpuyard.deploy.clouds.gpulab import Gpulab, SubmittedJob, proxy_command
from gpuyard.deploy.clouds.gpulab_definition import convert_definition
from gpuyard.deploy.terraform.resource import (
    ReplacedResource,
    State,
    computed_attribute,
    report_errors,
    required_attribute,
)
from gpuyard.errors import GpuyardError

_START_POLLS = 720  # two hours in the queue


class GpulabJob(ReplacedResource):
    """A job identified by its name: an unfinished job with this name is adopted, so none runs twice."""

    @classmethod
    def get_name(cls) -> str:
        return "gpulab_job"

    @classmethod
    def get_schema(cls) -> Schema:
        return Schema(
            attributes=[
                required_attribute("project", types.String(), "Project that the job runs for."),
                required_attribute(
                    "definition", types.String(), "Job definition as JSON, version 1 or 2."
                ),
                computed_attribute("job_id", types.String(), "GPULab's id of the job."),
                computed_attribute("address", types.String(), "Address for ssh."),
                computed_attribute("port", types.Number(), "Port of sshd."),
                computed_attribute("user", types.String(), "User for ssh."),
                computed_attribute(
                    "proxy_command", types.String(), "ProxyCommand for ssh, or empty."
                ),
            ],
            description="A job on imec's GPULab. gpulab-cli reads the certificate that GPULAB_CERT names.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        state: State | None = None
        with report_errors(ctx):
            gpulab = Gpulab.from_environment()
            definition = convert_definition(planned["definition"])
            name = str(definition.get("name"))
            job = next((job for job in gpulab.jobs() if job.name == name), None)
            job_id = job.id if job else gpulab.submit(json.dumps(definition), planned["project"])
            state = {**planned, "job_id": job_id, **_connection(None)}
            return {**state, **_connection(_wait_until_running(gpulab, job_id, name))}
        return state  # after an error, Terraform marks this state as tainted, and the next `up` replaces it

    def read(self, ctx: Any, current: State) -> State | None:
        with report_errors(ctx):
            job = Gpulab.from_environment().job(current["job_id"])
            if job.finished:
                return None
            return {**current, **_connection(job)}
        return current

    def delete(self, ctx: Any, current: State) -> None:
        with report_errors(ctx):
            Gpulab.from_environment().cancel(current["job_id"])


def _wait_until_running(gpulab: Gpulab, job_id: str, name: str) -> SubmittedJob:
    for _ in range(_START_POLLS):
        job = gpulab.job(job_id)
        if job.finished:
            raise GpuyardError(
                f"{job} finished before it ran; see the reason with: gpulab-cli debug {job_id}"
            )
        if job.ready:
            return job
        gpulab.pause()
    raise GpuyardError(f"{name} (job {job_id}) is still in GPULab's queue; run `up` again later")


def _connection(job: SubmittedJob | None) -> State:
    if job is None:
        return {"address": "", "port": 22, "user": "", "proxy_command": ""}
    return {
        "address": job.address,
        "port": job.port,
        "user": job.user,
        "proxy_command": proxy_command(job),
    }
