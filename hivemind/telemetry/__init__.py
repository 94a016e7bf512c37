"""Exports traces of tasks from the hive's records, by OpenTelemetry's GenAI conventions (README.md)."""
