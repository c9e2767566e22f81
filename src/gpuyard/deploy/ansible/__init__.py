"""The Ansible roles of a cluster's machines, and the code that applies them."""
