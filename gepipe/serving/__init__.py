"""Pipelines inside a server: what an exported model runs, and the export itself."""
