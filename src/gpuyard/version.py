"""The version of gpuyard, apart from the package so that any module can import it."""

__version__ = "0.2.0.dev0"
