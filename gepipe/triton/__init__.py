"""NVIDIA Triton: model repositories, their configuration and its faults, the server, its clients.

Knows nothing of pipelines: `gepipe.serving` puts these into a server.
"""
