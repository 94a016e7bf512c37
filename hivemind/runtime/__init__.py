"""The runtime: an agent's cycle, its tools, its process, and the supervisor of a swarm."""
