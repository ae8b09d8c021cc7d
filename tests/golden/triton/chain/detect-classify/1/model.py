"""Fused of the pipeline 'detect-classify', for Triton; made by gepipe."""

try:
    from gepipe.serving.fused import Fused as TritonPythonModel
except (ImportError, SyntaxError) as error:
    import sys

    raise ImportError(
        f"this model needs gepipe and Python 3.10 or newer; {sys.executable} is Python "
        f"{sys.version.split()[0]} and cannot import it: {error}; install it there: "
        "pip install gepipe 'numpy<2'"
    ) from error
