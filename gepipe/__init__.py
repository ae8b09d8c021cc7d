"""Three-stage inference pipelines."""
