# Instances of AWS EC2 in a network of their own: ssh comes in at the first one, and nothing else from outside.
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
  description = "Of all names; no other deployment has it."
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
  description = "AWS chooses where it is null."
}

variable "instance_type" {
  type = string
}

variable "image" {
  type        = string
  nullable    = true
  description = "The newest Ubuntu 24.04 where it is null."
}

variable "disk_gb" {
  type = number
}

variable "efa_interfaces" {
  type        = number
  description = "Elastic Fabric Adapters of each machine."
}

variable "ssh_from" {
  type        = string
  description = "Addresses from which ssh reaches the head."
}

variable "near" {
  type        = bool
  description = "A placement group for all machines."
}

variable "public_key" {
  type = string
}

provider "aws" {
  region = var.region
}

locals {
  network = "10.83.0.0/16"
  image   = var.image == null ? data.aws_ami.ubuntu[0].id : var.image
  # the first card carries IP as well; the others, where there are any, the fabric alone
  cards = range(max(var.efa_interfaces, 1))
}

data "aws_ami" "ubuntu" {
  count       = var.image == null ? 1 : 0
  most_recent = true
  owners      = ["099720109477"] # Canonical

  filter {
    name   = "name"
    values = ["ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*"]
  }
}

resource "aws_vpc" "cluster" {
  cidr_block = local.network
  tags       = { Name = var.prefix }
}

resource "aws_subnet" "cluster" {
  vpc_id            = aws_vpc.cluster.id
  cidr_block        = local.network
  availability_zone = var.zone
  tags              = { Name = var.prefix }
}

resource "aws_internet_gateway" "cluster" {
  vpc_id = aws_vpc.cluster.id
  tags   = { Name = var.prefix }
}

resource "aws_route_table" "cluster" {
  vpc_id = aws_vpc.cluster.id
  tags   = { Name = var.prefix }

  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.cluster.id
  }
}

resource "aws_route_table_association" "cluster" {
  subnet_id      = aws_subnet.cluster.id
  route_table_id = aws_route_table.cluster.id
}

resource "aws_security_group" "inside" {
  name        = "${var.prefix}-inside"
  description = "Machines of one cluster talk to each other."
  vpc_id      = aws_vpc.cluster.id
  tags        = { Name = "${var.prefix}-inside" }
}

resource "aws_vpc_security_group_ingress_rule" "inside" {
  security_group_id            = aws_security_group.inside.id
  referenced_security_group_id = aws_security_group.inside.id
  ip_protocol                  = "-1"
}

# an Elastic Fabric Adapter wants its own group named in both directions
resource "aws_vpc_security_group_egress_rule" "inside" {
  security_group_id            = aws_security_group.inside.id
  referenced_security_group_id = aws_security_group.inside.id
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_egress_rule" "outside" {
  security_group_id = aws_security_group.inside.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

resource "aws_security_group" "door" {
  name        = "${var.prefix}-door"
  description = "ssh to the head."
  vpc_id      = aws_vpc.cluster.id
  tags        = { Name = "${var.prefix}-door" }
}

resource "aws_vpc_security_group_ingress_rule" "door" {
  security_group_id = aws_security_group.door.id
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
    for_each = local.cards

    content {
      device_index          = 0
      network_card_index    = network_interfaces.value
      interface_type        = var.efa_interfaces == 0 ? null : network_interfaces.value == 0 ? "efa" : "efa-only"
      subnet_id             = aws_subnet.cluster.id
      delete_on_termination = true
      security_groups       = count.index == 0 && network_interfaces.value == 0 ? [aws_security_group.inside.id, aws_security_group.door.id] : [aws_security_group.inside.id]
    }
  }

  dynamic "placement" {
    for_each = aws_placement_group.cluster

    content {
      group_name = placement.value.name
    }
  }

  # session tokens, so that what a program of a user fetches for others is not the machine's
  metadata_options {
    http_tokens = "required"
  }

  # a newer image must not replace machines that are there
  lifecycle {
    ignore_changes = [image_id]
  }
}

resource "aws_instance" "node" {
  count = var.nodes
  tags  = { Name = "${var.prefix}-${count.index}" }

  launch_template {
    id      = aws_launch_template.node[count.index].id
    version = aws_launch_template.node[count.index].latest_version
  }
}

# without one, a machine with several cards could not fetch packages
resource "aws_eip" "node" {
  count             = var.nodes
  network_interface = aws_instance.node[count.index].primary_network_interface_id
  tags              = { Name = "${var.prefix}-${count.index}" }
  depends_on        = [aws_internet_gateway.cluster]
}

output "hosts" {
  value = [for index, machine in aws_instance.node : {
    name            = "node${index}"
    address         = index == 0 ? aws_eip.node[0].public_ip : machine.private_ip
    private_address = machine.private_ip
  }]
}
