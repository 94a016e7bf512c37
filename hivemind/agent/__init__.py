"""An agent: its cycle and what each step of it needs."""
