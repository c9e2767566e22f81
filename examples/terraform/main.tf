# An emulated network on this host, in your own Terraform: two nodes joined at 100 Mbit/s. Needs root.
terraform {
  required_providers {
    gpuyard = {
      source = "terraform.local/gpuyard/gpuyard"
    }
  }
}

variable "link" {
  type    = string
  default = "100 Mbit/s"
}

resource "gpuyard_lab" "network" {
  name  = "own-hcl"
  nodes = 2
  link  = var.link
}

output "addresses" {
  value = gpuyard_lab.network.addresses
}
