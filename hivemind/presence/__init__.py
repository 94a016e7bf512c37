"""The presence of agents: name locks, heartbeats, status files, doorbells."""
