"""Lessons: what agents have learned from their work, in files that people read and edit."""
