"""What `gepipe doctor` shows."""

from __future__ import annotations

import json

from gepipe.cli.text import harmless, print_out
from gepipe.diagnosis.diagnose import diagnose
from gepipe.diagnosis.finding import Host
from gepipe.errors import ConfigError


def show_diagnosis(*, as_json: bool, host: Host | None = None) -> int:
    """Look at everything, show it, and return the exit code."""
    findings = list(diagnose(host))
    bad = any(finding.state == "error" for finding in findings)
    if as_json:
        print_out(json.dumps({"ok": not bad, "findings": [f._asdict() for f in findings]}))
    else:
        width = max(len(finding.what) for finding in findings)
        for state, what, text in findings:
            print_out(harmless(f"{state.ljust(7)}  {what.ljust(width)}  {text}"))
    return ConfigError.exit_code if bad else 0
