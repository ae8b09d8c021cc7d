"""A pipeline of the YAML, run: plans, jobs and the Python interface."""
