"""Where the workers of a run are: on this machine, on a lab's nodes, on hosts, in a Slurm allocation."""

from gpuyard.measure.places.here import Here
from gpuyard.measure.places.hosts import Hosts
from gpuyard.measure.places.nodes import LabNodes
from gpuyard.measure.places.place import Place
from gpuyard.measure.places.slurm import SlurmAllocation, allocation

__all__ = ["Here", "Hosts", "LabNodes", "Place", "SlurmAllocation", "allocation"]
