"""Older servers: gpuyard says what they lack, changes the manifest, or refuses the job."""

import json
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.kubernetes.engine import KubernetesEngine
from gpuyard.jobs.engines.kubernetes.server import ServerVersion
from tests.command_line import run_process
from tests.jobs.engines.kubernetes.api_server import ApiServer, Handler
from tests.jobs.engines.kubernetes.conftest import kubeconfig, new_job
from tests.jobs.engines.kubernetes.test_command_line import gpuyard

NEW_FIELDS = {"podFailurePolicy", "podReplacementPolicy", "completionMode", "suspend"}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("v1.20.2", (1, 20)), ("v1.31.4-eks-2d5f260", (1, 31)), ("v1.27.3-gke.100+x", (1, 27)), ("1.9", (1, 9))],
)  # fmt: skip
def test_versions(text: str, numbers: tuple[int, int]) -> None:
    assert ServerVersion.parse(text).numbers == numbers
    assert ServerVersion.parse(text).text == text


@pytest.mark.parametrize("text", [None, 3, "", "v1", "1.2.3 x\n", "v99999.1", "x" * 1000])
def test_an_unknown_version_counts_as_current(text: object) -> None:
    version = ServerVersion.parse(text)
    assert (version.text, version.numbers >= (1, 29)) == ("", True)


@pytest.mark.parametrize(
    ("version", "fields", "limit", "words"),
    [
        ("v1.20.2", set(), 0, ("v1.20.2", "retries.lost", "1.26", "1.29")),
        ("v1.28.1", {"podFailurePolicy"}, 2, ("v1.28.1", "1.29")),
        ("v1.29.0", {"podFailurePolicy", "podReplacementPolicy"}, 2, ()),
    ],
)
def test_a_failing_command_is_never_restarted_silently(
    engine: KubernetesEngine, api: ApiServer, version: str, fields: set[str], limit: int, words: tuple[str, ...]
) -> None:  # fmt: skip
    api.git_version = version
    request = engine.plan(new_job(retries={"lost": 2}))
    engine.submit(request)
    spec = api.one("jobs")["spec"]
    assert (spec.keys() & NEW_FIELDS, spec["backoffLimit"]) == (fields, limit)
    assert all(word in " ".join(request.caveats) for word in words)
    assert bool(request.caveats) == bool(words)
    stays = [each["key"] for each in spec["template"]["spec"].get("tolerations", [])]
    assert ("node.kubernetes.io/unreachable" in stays) == ("podReplacementPolicy" not in fields)


def test_requested_retries_stay(engine: KubernetesEngine, api: ApiServer) -> None:
    api.git_version = "v1.20.2"
    request = engine.plan(new_job(retries={"lost": 1, "failed": 2}))
    assert request.manifests[0]["spec"]["backoffLimit"] == 3
    assert not any("retries" in caveat for caveat in request.caveats)


@pytest.mark.parametrize(
    ("spec", "key"),
    [({"nodes": 2, "gpus": 2}, "nodes"), ({"kubernetes": {"queue": "team"}}, "kubernetes.queue")],
)
def test_what_an_old_server_cannot_do_is_refused(
    engine: KubernetesEngine, api: ApiServer, spec: dict[str, Any], key: str
) -> None:
    api.git_version = "v1.20.2"
    with pytest.raises(UserMistake, match=rf"^{key}: .*v1\.20\.2.*1\.22"):
        engine.plan(new_job(**spec))
    api.git_version = "v1.22.0"
    engine.plan(new_job(**spec))


def test_a_server_that_drops_a_field_does_not_keep_the_job(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    """The feature may be switched off."""

    def drop(handler: Handler) -> bool:
        if handler.command == "POST":
            handler.body["spec"].pop("podFailurePolicy")  # type: ignore[index]
        return False

    api.faults.append(drop)
    with pytest.raises(GpuyardError, match="podFailurePolicy"):
        engine.submit(engine.plan(new_job()))
    assert api.objects == {}


def test_a_server_that_hides_its_version_counts_as_current(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    def forbid(handler: Handler) -> bool:
        if handler.path != "/version/":
            return False
        handler.refuse(403, "Forbidden", "no")
        return True

    api.faults.append(forbid)
    engine.submit(engine.plan(new_job()))
    assert "podFailurePolicy" in api.one("jobs")["spec"]


def test_submit_prints_the_differences(api: ApiServer, config: Path, tmp_path: Path) -> None:
    api.git_version = "v1.20.2"
    (tmp_path / "x.job.yaml").write_text("command: x\nretries: {lost: 1}\nkubernetes: {image: i}\n")
    words = ("submit", "x.job.yaml", "--engine", "kubernetes")
    done = gpuyard(tmp_path, *words)
    assert done.stdout.count("\n") == 1 and "v1.20.2" in done.stderr
    answer = json.loads(gpuyard(tmp_path, *words, "--json").stdout)
    assert any("v1.20.2" in caveat for caveat in answer["caveats"])
    assert "v1.20.2" in gpuyard(tmp_path, *words, "--dry-run").stdout
    (tmp_path / "current.job.yaml").write_text("command: x\nkubernetes: {image: i}\n")
    api.git_version = "v1.29.0"
    assert gpuyard(tmp_path, "submit", "current.job.yaml", "--engine", "kubernetes").stderr == ""


def test_an_unchecked_certificate_is_one_sentence(
    api: ApiServer, config: Path, tmp_path: Path
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", "/CN=x", "-days", "2", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    api.socket = context.wrap_socket(api.socket, server_side=True)
    document = json.loads(kubeconfig(api.url.replace("http:", "https:")))
    document["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    config.write_text(json.dumps(document))
    (tmp_path / "x.job.yaml").write_text("command: x\nkubernetes: {image: i}\n")
    environment = {**os.environ, "PATH": str(Path(sys.executable).parent)}
    done = run_process(
        "submit", "x.job.yaml", "--engine", "kubernetes", cwd=tmp_path, environment=environment
    )
    assert done.returncode == 0
    assert done.stderr.count("insecure-skip-tls-verify") == 1 and "Warning" not in done.stderr
    done = run_process("queue", cwd=tmp_path, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
