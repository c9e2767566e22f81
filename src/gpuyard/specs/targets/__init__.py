"""The sources of a deployment's machines, as its file describes them."""
