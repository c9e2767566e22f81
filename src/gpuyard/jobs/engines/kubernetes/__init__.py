"""Jobs on Kubernetes: manifests from a job file, and their life through the official client."""
