# An emulated network on this host, in your own Terraform configuration: two nodes with 100 Mbit/s links. Needs root.
terraform {
  required_providers {
    gpuyard = {
      source = "terraform.local/gpuyard/gpuyard"
    }
  }
}

variable "rate_bytes_per_second" {
  type    = number
  default = 12500000 # 100 Mbit/s
}

resource "gpuyard_lab" "network" {
  name                  = "own-hcl"
  nodes                 = 2
  rate_bytes_per_second = var.rate_bytes_per_second
}

output "addresses" {
  value = gpuyard_lab.network.addresses
}
