"""The room around a cluster: power, plugs, racks, cooling, networks, and storage."""
