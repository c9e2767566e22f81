"""Jobs on Kubernetes: manifests from a job file, submitted and followed with the official client."""
