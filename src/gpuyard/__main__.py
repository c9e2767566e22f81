"""Run the command line with `python -m gpuyard`."""

from gpuyard.interpreter import forget_current_directory

forget_current_directory()  # before any import that the current directory could answer

from gpuyard.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
