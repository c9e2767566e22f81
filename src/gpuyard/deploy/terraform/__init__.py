"""Running Terraform, and gpuyard's own Terraform provider."""
