"""`gpuyard_gpulab_job`: one job of imec's GPULab, which has no Terraform provider of its own."""

import json
from typing import Any

from tf import types
from tf.schema import Schema

from gpuyard.deploy.clouds.gpulab import Gpulab, SubmittedJob, proxy_command
from gpuyard.deploy.terraform.resource import ReplacedResource, State, computed, given, told
from gpuyard.errors import GpuyardError

_START_POLLS = 720  # two hours in the queue


class GpulabJob(ReplacedResource):
    """By its name: one that has it and is not over is taken, so that none runs twice."""

    @classmethod
    def get_name(cls) -> str:
        return "gpulab_job"

    @classmethod
    def get_schema(cls) -> Schema:
        return Schema(
            attributes=[
                given("project", types.String(), "That it runs for."),
                given("definition", types.String(), "Of the job, as JSON, of version 1 or 2."),
                computed("job_id", types.String(), "GPULab's own."),
                computed("address", types.String(), "Where ssh reaches it."),
                computed("port", types.Number(), "Of its sshd."),
                computed("user", types.String(), "Who logs in."),
                computed("proxy_command", types.String(), "By which ssh comes there, or empty."),
            ],
            description="A job of imec's GPULab. gpulab-cli reads the certificate that GPULAB_CERT names.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        # here, because Terraform starts a provider several times a command, and targets bring all that describes them
        from gpuyard.deploy.targets.gpulab.definition import converted

        made: State | None = None
        with told(ctx):
            lab = Gpulab.of_user()
            definition = converted(planned["definition"])
            name = str(definition.get("name"))
            there = next((job for job in lab.jobs() if job.name == name), None)
            identity = there.id if there else lab.submit(json.dumps(definition), planned["project"])
            made = {**planned, "job_id": identity, **_way(None)}
            return {**made, **_way(_running(lab, identity, name))}
        return made  # with what went wrong: Terraform keeps it, and the next `up` replaces it

    def read(self, ctx: Any, current: State) -> State | None:
        with told(ctx):
            job = Gpulab.of_user().job(current["job_id"])
            if job.over:
                return None
            return {**current, **_way(job)}
        return current

    def delete(self, ctx: Any, current: State) -> None:
        with told(ctx):
            Gpulab.of_user().end(current["job_id"])


def _running(lab: Gpulab, identity: str, name: str) -> SubmittedJob:
    for _ in range(_START_POLLS):
        job = lab.job(identity)
        if job.over:
            raise GpuyardError(f"{job} ended before it ran; gpulab-cli debug {identity} says why")
        if job.ready:
            return job
        lab.pause()
    raise GpuyardError(f"{name} (job {identity}) is still in GPULab's queue")


def _way(job: SubmittedJob | None) -> State:
    if job is None:
        return {"address": "", "port": 22, "user": "", "proxy_command": ""}
    return {
        "address": job.address,
        "port": job.port,
        "user": job.user,
        "proxy_command": proxy_command(job),
    }
