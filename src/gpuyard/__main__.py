"""`python -m gpuyard`."""

from gpuyard.cli.main import main

if __name__ == "__main__":
    main()
