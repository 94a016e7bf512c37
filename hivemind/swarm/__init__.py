"""A swarm on one machine: supervisor, fork server, processes, status."""
