"""What a machine has that a run needs: processors, memory, libraries, plugins, NPU, CANN."""
