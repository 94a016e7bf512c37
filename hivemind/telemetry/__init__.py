"""Exports the traces of tasks by OpenTelemetry's GenAI conventions, made of the hive's records (README.md)."""
