"""Processes and shared memory: knows no YAML and no engine."""
