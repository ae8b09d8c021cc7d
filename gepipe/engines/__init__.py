"""Inference engines: models opened on a device and fed whole batches."""
