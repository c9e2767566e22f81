"""The version of gpuyard and the address of its documentation, apart from the package so that any module can import them."""

__version__ = "0.2.0.dev0"
DOCUMENTATION = "https://gpuyard.github.io/gpuyard"
