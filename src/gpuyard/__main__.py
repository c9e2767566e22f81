"""`python -m gpuyard`."""

from gpuyard.interpreter import forget_current_directory

forget_current_directory()  # before anything is imported that could be found there

from gpuyard.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
