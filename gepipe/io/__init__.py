"""Where inputs come from and where results go: sources, sinks, and the files of a job."""
