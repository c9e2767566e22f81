# Instances at AWS EC2 in their own network. From outside, only ssh to the first instance is allowed.
terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
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

variable "region" {
  type = string
}

variable "zone" {
  type        = string
  nullable    = true
  description = "Availability zone; if it is null, the first that offers the instance type."
}

variable "instance_type" {
  type = string
}

variable "image" {
  type        = string
  nullable    = true
  description = "AMI; if it is null, the one that image_parameter names at the first apply."
}

variable "image_parameter" {
  type        = string
  description = "Public parameter of AWS Systems Manager that holds the newest AMI."
}

variable "disk_gb" {
  type = number
}

variable "efa_cards" {
  type        = list(number)
  description = "Network cards that get an Elastic Fabric Adapter."
}

variable "market" {
  type        = string
  nullable    = true
  description = "spot, capacity-block, or null for on demand."
}

variable "capacity_reservation" {
  type        = string
  nullable    = true
  description = "Capacity reservation or capacity block to use."
}

variable "lifetime_seconds" {
  type        = number
  nullable    = true
  description = "Seconds after which a new machine terminates itself, unless gpuyard sets another time on it."
}

variable "ssh_from" {
  type        = string
  description = "CIDR block from which ssh may reach the head."
}

variable "near" {
  type        = bool
  description = "Put all machines in one placement group."
}

variable "public_key" {
  type = string
}

provider "aws" {
  region = var.region
}

locals {
  image = var.image == null ? data.aws_ssm_parameter.image[0].value : var.image
  zones = sort(distinct(data.aws_ec2_instance_type_offerings.zones.locations))
  zone  = var.zone == null ? try(local.zones[0], null) : var.zone
  # AWS's guide for several network cards: an ordinary primary interface, and on every card one that carries only the
  # fabric. It is the second device of the first card.
  interfaces = concat(
    [{ card = 0, device = 0, type = null }],
    [for card in var.efa_cards : { card = card, device = card == 0 ? 1 : 0, type = "efa-only" }],
  )
  first_timer = <<-EOT
    #!/bin/sh
    systemd-run --unit=gpuyard-first-expiry --on-active=${coalesce(var.lifetime_seconds, 0)} shutdown -P now
  EOT
}

data "aws_ssm_parameter" "image" {
  count = var.image == null ? 1 : 0
  name  = var.image_parameter
}

data "aws_ec2_instance_type_offerings" "zones" {
  location_type = "availability-zone"

  filter {
    name   = "instance-type"
    values = [var.instance_type]
  }
}

resource "aws_vpc" "cluster" {
  cidr_block = "10.83.0.0/16"
  tags       = { Name = var.prefix }
}

resource "terraform_data" "zone" {
  input = var.zone
}

resource "aws_subnet" "head" {
  vpc_id            = aws_vpc.cluster.id
  cidr_block        = "10.83.0.0/24"
  availability_zone = local.zone
  tags              = { Name = "${var.prefix}-head" }

  # A zone that offers the type later must not replace the cluster; another zone in the file does.
  lifecycle {
    ignore_changes       = [availability_zone]
    replace_triggered_by = [terraform_data.zone]

    precondition {
      condition     = length(local.zones) > 0
      error_message = "${var.region} does not offer ${var.instance_type}: choose another region or instance_type."
    }

    precondition {
      condition     = length(local.zones) == 0 || contains(local.zones, coalesce(local.zone, "none"))
      error_message = "${coalesce(var.zone, "none")} does not offer ${var.instance_type}: set zone to ${join(" or ", local.zones)}, or omit it."
    }
  }
}

# The other machines, and all fabric interfaces: traffic of the fabric stays in one subnet.
resource "aws_subnet" "private" {
  vpc_id            = aws_vpc.cluster.id
  cidr_block        = "10.83.128.0/17"
  availability_zone = aws_subnet.head.availability_zone
  tags              = { Name = "${var.prefix}-private" }
}

resource "aws_internet_gateway" "cluster" {
  vpc_id = aws_vpc.cluster.id
  tags   = { Name = var.prefix }
}

resource "aws_route_table" "head" {
  vpc_id = aws_vpc.cluster.id
  tags   = { Name = "${var.prefix}-head" }

  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.cluster.id
  }
}

resource "aws_route_table_association" "head" {
  subnet_id      = aws_subnet.head.id
  route_table_id = aws_route_table.head.id
}

# Machines without a public address download packages through this gateway.
resource "aws_eip" "nat" {
  count      = var.nodes > 1 ? 1 : 0
  tags       = { Name = "${var.prefix}-nat" }
  depends_on = [aws_internet_gateway.cluster]
}

resource "aws_nat_gateway" "private" {
  count         = var.nodes > 1 ? 1 : 0
  allocation_id = aws_eip.nat[0].id
  subnet_id     = aws_subnet.head.id
  tags          = { Name = var.prefix }
  depends_on    = [aws_internet_gateway.cluster]
}

resource "aws_route_table" "private" {
  vpc_id = aws_vpc.cluster.id
  tags   = { Name = "${var.prefix}-private" }

  dynamic "route" {
    for_each = aws_nat_gateway.private

    content {
      cidr_block     = "0.0.0.0/0"
      nat_gateway_id = route.value.id
    }
  }
}

resource "aws_route_table_association" "private" {
  subnet_id      = aws_subnet.private.id
  route_table_id = aws_route_table.private.id
}

# Datasets in S3 would otherwise pay for every gigabyte through the gateway.
resource "aws_vpc_endpoint" "s3" {
  vpc_id          = aws_vpc.cluster.id
  service_name    = "com.amazonaws.${var.region}.s3"
  route_table_ids = [aws_route_table.head.id, aws_route_table.private.id]
  tags            = { Name = var.prefix }
}

resource "aws_security_group" "internal" {
  name        = "${var.prefix}-internal"
  description = "Allows all traffic between machines of the cluster."
  vpc_id      = aws_vpc.cluster.id
  tags        = { Name = "${var.prefix}-internal" }
}

resource "aws_vpc_security_group_ingress_rule" "internal" {
  security_group_id            = aws_security_group.internal.id
  referenced_security_group_id = aws_security_group.internal.id
  ip_protocol                  = "-1"
}

# An Elastic Fabric Adapter needs rules for its own group in both directions.
resource "aws_vpc_security_group_egress_rule" "internal" {
  security_group_id            = aws_security_group.internal.id
  referenced_security_group_id = aws_security_group.internal.id
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_egress_rule" "outside" {
  security_group_id = aws_security_group.internal.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

resource "aws_security_group" "ssh" {
  name        = "${var.prefix}-ssh"
  description = "Allows ssh to the head."
  vpc_id      = aws_vpc.cluster.id
  tags        = { Name = "${var.prefix}-ssh" }
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  security_group_id = aws_security_group.ssh.id
  cidr_ipv4         = var.ssh_from
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
}

resource "aws_key_pair" "cluster" {
  key_name   = var.prefix
  public_key = var.public_key
}

resource "aws_placement_group" "cluster" {
  count    = var.near ? 1 : 0
  name     = var.prefix
  strategy = "cluster"
}

resource "aws_launch_template" "node" {
  count         = var.nodes
  name          = "${var.prefix}-${count.index}"
  image_id      = local.image
  instance_type = var.instance_type
  key_name      = aws_key_pair.cluster.key_name
  user_data     = var.lifetime_seconds == null ? null : base64encode(local.first_timer)

  # A machine that powers itself off when its time is over costs nothing afterwards.
  instance_initiated_shutdown_behavior = "terminate"

  block_device_mappings {
    device_name = "/dev/sda1"

    ebs {
      volume_size           = var.disk_gb
      volume_type           = "gp3"
      encrypted             = true
      delete_on_termination = true
    }
  }

  dynamic "network_interfaces" {
    for_each = local.interfaces

    content {
      network_card_index    = network_interfaces.value.card
      device_index          = network_interfaces.value.device
      interface_type        = network_interfaces.value.type
      subnet_id             = count.index == 0 && network_interfaces.value.type == null ? aws_subnet.head.id : aws_subnet.private.id
      delete_on_termination = true
      security_groups       = count.index == 0 && network_interfaces.value.type == null ? [aws_security_group.internal.id, aws_security_group.ssh.id] : [aws_security_group.internal.id]
    }
  }

  dynamic "instance_market_options" {
    for_each = var.market == null ? [] : [var.market]

    content {
      market_type = instance_market_options.value

      dynamic "spot_options" {
        for_each = instance_market_options.value == "spot" ? ["one-time"] : []

        content {
          spot_instance_type             = spot_options.value
          instance_interruption_behavior = "terminate"
        }
      }
    }
  }

  dynamic "capacity_reservation_specification" {
    for_each = var.capacity_reservation == null ? [] : [var.capacity_reservation]

    content {
      capacity_reservation_target {
        capacity_reservation_id = capacity_reservation_specification.value
      }
    }
  }

  dynamic "placement" {
    for_each = aws_placement_group.cluster

    content {
      group_name = placement.value.name
    }
  }

  # Require session tokens, so that a request forged through a user's program cannot read the metadata.
  metadata_options {
    http_tokens = "required"
  }

  # A newer image or another lifetime must not replace existing machines.
  lifecycle {
    ignore_changes = [image_id, user_data]
  }
}

resource "aws_instance" "node" {
  count      = var.nodes
  tags       = { Name = "${var.prefix}-${count.index}" }
  depends_on = [aws_route_table_association.private, aws_nat_gateway.private]

  launch_template {
    id      = aws_launch_template.node[count.index].id
    version = aws_launch_template.node[count.index].latest_version
  }
}

resource "aws_eip" "head" {
  network_interface = aws_instance.node[0].primary_network_interface_id
  tags              = { Name = "${var.prefix}-head" }
  depends_on        = [aws_internet_gateway.cluster]
}

output "hosts" {
  value = [for index, machine in aws_instance.node : {
    name            = "node${index}"
    machine_id      = machine.id
    address         = index == 0 ? aws_eip.head.public_ip : machine.private_ip
    private_address = machine.private_ip
  }]
}
