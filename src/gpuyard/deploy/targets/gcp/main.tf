# Instances at Google Compute Engine in their own network. From outside, only ssh to the first instance is allowed.
terraform {
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.40, < 8.0" # network_profile
    }
  }
}

variable "prefix" {
  type        = string
  description = "Prefix of all resource names, unique to this deployment."
}

variable "nodes" {
  type = number
}

variable "project" {
  type = string
}

variable "zone" {
  type = string
}

variable "machine_type" {
  type = string
}

variable "accelerator" {
  type        = string
  nullable    = true
  description = "Type of GPUs to add, if the machine type does not include them."
}

variable "gpus" {
  type        = number
  description = "Number of GPUs per machine."
}

variable "image" {
  type = string
}

variable "disk_gb" {
  type = number
}

variable "spot" {
  type        = bool
  description = "Use spot machines, which Google may stop at any time."
}

variable "lifetime_seconds" {
  type        = number
  nullable    = true
  description = "Seconds after which a new machine powers itself off, unless gpuyard sets another time on it."
}

variable "user" {
  type = string
}

variable "ssh_from" {
  type        = string
  description = "CIDR block from which ssh may reach the head."
}

variable "near" {
  type        = bool
  description = "Use a compact placement policy for all machines."
}

variable "rails" {
  type        = number
  description = "Number of RDMA cards per machine; each gets a subnetwork of a second network."
}

variable "public_key" {
  type = string
}

locals {
  network     = "10.83.0.0/16"
  rdma        = "10.84.0.0/16"
  region      = join("-", slice(split("-", var.zone), 0, 2))
  internal    = "${var.prefix}-internal"
  ssh         = "${var.prefix}-ssh"
  first_timer = <<-EOT
    #!/bin/sh
    systemd-run --unit=gpuyard-first-expiry --on-active=${coalesce(var.lifetime_seconds, 0)} shutdown -P now
  EOT
}

provider "google" {
  project = var.project
  region  = local.region
  zone    = var.zone
}

resource "google_compute_network" "cluster" {
  name                    = var.prefix
  auto_create_subnetworks = false
  mtu                     = 8896 # the largest; collectives on TCP are faster with large packets
}

resource "google_compute_subnetwork" "cluster" {
  name          = var.prefix
  network       = google_compute_network.cluster.id
  ip_cidr_range = local.network
  region        = local.region
}

# Machines other than the head have no public address, and download packages through it.
resource "google_compute_router" "nat" {
  count   = var.nodes > 1 ? 1 : 0
  name    = var.prefix
  network = google_compute_network.cluster.id
  region  = local.region
}

resource "google_compute_router_nat" "nat" {
  count                              = var.nodes > 1 ? 1 : 0
  name                               = var.prefix
  router                             = google_compute_router.nat[0].name
  region                             = local.region
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"
}

# A network with an RDMA profile has only RDMA cards, in one zone, and its firewall allows everything between them.
resource "google_compute_network" "rdma" {
  count                   = var.rails > 0 ? 1 : 0
  name                    = "${var.prefix}-rdma"
  auto_create_subnetworks = false
  mtu                     = 8896
  network_profile         = "projects/${var.project}/global/networkProfiles/${var.zone}-vpc-roce"
}

resource "google_compute_subnetwork" "rdma" {
  count         = var.rails
  name          = "${var.prefix}-rdma-${count.index}"
  network       = google_compute_network.rdma[0].id
  ip_cidr_range = cidrsubnet(local.rdma, 8, count.index)
  region        = local.region
}

resource "google_compute_firewall" "internal" {
  name        = local.internal
  network     = google_compute_network.cluster.name
  source_tags = [local.internal]
  target_tags = [local.internal]

  allow {
    protocol = "all"
  }
}

resource "google_compute_firewall" "ssh" {
  name          = local.ssh
  network       = google_compute_network.cluster.name
  source_ranges = [var.ssh_from]
  target_tags   = [local.ssh]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

resource "google_compute_resource_policy" "near" {
  count  = var.near ? 1 : 0
  name   = var.prefix
  region = local.region

  group_placement_policy {
    vm_count    = var.nodes
    collocation = "COLLOCATED"
  }
}

resource "google_compute_instance" "node" {
  count             = var.nodes
  name              = "${var.prefix}-${count.index}"
  machine_type      = var.machine_type
  zone              = var.zone
  tags              = count.index == 0 ? [local.internal, local.ssh] : [local.internal]
  resource_policies = google_compute_resource_policy.near[*].self_link
  desired_status    = "RUNNING"

  # cloud-init runs the script at the first start.
  metadata = merge(
    {
      ssh-keys               = "${var.user}:${var.public_key}"
      block-project-ssh-keys = "true"
    },
    var.lifetime_seconds == null ? {} : { user-data = local.first_timer },
  )

  boot_disk {
    initialize_params {
      image = var.image
      size  = var.disk_gb
      type  = "pd-balanced"
    }
  }

  network_interface {
    subnetwork = google_compute_subnetwork.cluster.id
    nic_type   = "GVNIC"

    dynamic "access_config" {
      for_each = count.index == 0 ? [0] : []

      content {
      }
    }
  }

  dynamic "network_interface" {
    for_each = google_compute_subnetwork.rdma

    content {
      subnetwork = network_interface.value.id
      nic_type   = "MRDMA"
    }
  }

  dynamic "guest_accelerator" {
    for_each = var.accelerator == null ? [] : [var.accelerator]

    content {
      type  = guest_accelerator.value
      count = var.gpus
    }
  }

  # Machines with GPUs cannot be migrated while they run.
  scheduling {
    on_host_maintenance = "TERMINATE"
    automatic_restart   = !var.spot
    preemptible         = var.spot
    provisioning_model  = var.spot ? "SPOT" : "STANDARD"

    instance_termination_action = var.spot ? "STOP" : null
  }

  # A newer image of the family must not replace existing machines.
  lifecycle {
    ignore_changes = [boot_disk[0].initialize_params[0].image, metadata["user-data"]]
  }

  depends_on = [google_compute_router_nat.nat]
}

output "hosts" {
  value = [for index, machine in google_compute_instance.node : {
    name            = "node${index}"
    machine_id      = machine.instance_id
    address         = index == 0 ? machine.network_interface[0].access_config[0].nat_ip : machine.network_interface[0].network_ip
    private_address = machine.network_interface[0].network_ip
  }]
}
