"""Links hives through PostgreSQL: tasks, letters and journals of several folders (README.md)."""
