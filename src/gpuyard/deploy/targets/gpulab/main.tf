# Jobs on imec's GPULab, one per machine.
terraform {
  required_providers {
    gpuyard = {
      source = "terraform.local/gpuyard/gpuyard"
    }
  }
}

variable "project" {
  type = string
}

variable "definitions" {
  type        = list(string)
  description = "Job definitions as JSON, one per machine."
}

resource "gpuyard_gpulab_job" "node" {
  count      = length(var.definitions)
  project    = var.project
  definition = var.definitions[count.index]
}

output "hosts" {
  value = [for index, job in gpuyard_gpulab_job.node : {
    name          = "node${index}"
    machine_id    = job.job_id
    address       = job.address
    port          = job.port
    user          = job.user
    proxy_command = job.proxy_command
  }]
}
