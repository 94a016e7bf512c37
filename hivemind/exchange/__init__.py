"""Links hives through PostgreSQL, so they exchange tasks, letters and events (README.md)."""
