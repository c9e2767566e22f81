"""`python -m gpuyard.web.job_of_owner HANDLE`: print a job's page as JSON.

A server that serves several users runs it as the owner of the job, whose files only the owner can read.
"""

import json
import sys

from gpuyard.api.job_page import describe_job
from gpuyard.errors import GpuyardError
from gpuyard.report.kept import encode_answer


def main() -> None:
    try:
        answer = describe_job(sys.argv[1])
    except GpuyardError as error:
        sys.exit(f"gpuyard: {error}")
    sys.stdout.write(json.dumps(encode_answer(answer)))


if __name__ == "__main__":
    main()
