"""A task that is being worked on."""
