"""The room around a cluster: power, plugs, racks, cooling, network fabric and storage."""
