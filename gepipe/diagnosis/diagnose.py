"""Looks at everything, in the order in which one depends on the other."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from gepipe.diagnosis import base, cards, software
from gepipe.diagnosis.finding import Finding, Host


def diagnose(host: Host | None = None) -> Iterator[Finding]:
    """Yield what is found, without loading any of the heavy libraries into this process.

    Args:
        host: The machine; the real one by default.
    """
    host = host or Host()
    yield from base.look_at_packages(host)
    yield from base.look_at_machine(host)
    yield from look_at_npu(host)
    yield from base.look_at_plugins()


def look_at_npu(host: Host) -> Iterator[Finding]:
    """Yield what is found of cards, driver, CANN and pyACL; a single line where there is nothing.

    Args:
        host: The machine.
    """
    if host.is_emulated:
        text = "GEPIPE_ACL=emulator: an EMULATED NPU is used, nothing runs on a card"
        yield Finding("ok", "npu", text)
        yield from cards.look_at_acl(host, host.ask_acl(host))
        return
    if not cards.has_traces(host):
        if find_spec("acl") is None:
            text = (
                "no Ascend card and no CANN here: models run on the CPU, or with "
                "GEPIPE_ACL=emulator on an emulated NPU"
            )
            yield Finding("ok", "npu", text)
            return
        yield Finding("warning", "npu", "`acl` can be found, but neither a card nor CANN")
    yield from _look_at_all(host)


def _look_at_all(host: Host) -> Iterator[Finding]:
    nodes = cards.card_nodes(host)
    findings = [
        *cards.look_at_driver(host),
        *cards.look_at_nodes(host),
        *software.look_at_visible(host, len(nodes)),
        *software.look_at_cann(host),
        *software.look_at_python(host),
    ]
    said = host.ask_acl(host)
    answers = list(cards.look_at_acl(host, said))
    if not nodes:  # a machine that only converts: acl need not work there
        answers = [
            Finding("warning", what, text) if state == "error" else Finding(state, what, text)
            for state, what, text in answers
        ]
    findings += [*answers, *software.look_at_kernels(host, said.soc)]
    bad = sum(1 for finding in findings if finding.state == "error")
    if bad:
        text = f"cannot be used: {bad} of the lines below must be put right first"
        yield Finding("warning", "npu", text)
    elif nodes:
        yield Finding("ok", "npu", f"{len(nodes)} x {said.soc or 'Ascend'} can be used")
    else:
        yield Finding(
            "warning", "npu", "CANN or driver is here, but no card: .om models cannot run"
        )
    yield from findings
