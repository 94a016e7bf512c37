"""A swarm on one machine: supervisor, nursery, processes, status."""
