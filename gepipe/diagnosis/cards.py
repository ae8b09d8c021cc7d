"""The cards as the kernel shows them, their driver, and what pyACL says."""

from __future__ import annotations

import grp
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gepipe.diagnosis.finding import Finding, Host, sized
from gepipe.diagnosis.probe import Probe
from gepipe.engines.ge.codes import explain
from gepipe.errors import reason_of
from gepipe.models.cann import version_in

#: Nodes that every process with a card needs, beside that of the card.
MANAGERS: Final = ("davinci_manager", "devmm_svm", "hisi_hdc")
_GROUP: Final = "HwHiAiUser"
_FLAGS: Final = (
    "--device /dev/davinci0 --device /dev/davinci_manager --device /dev/devmm_svm "
    "--device /dev/hisi_hdc"
)
_MOUNT: Final = "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro"
_ALREADY: Final = 100002


def card_nodes(host: Host) -> list[str]:
    """Return the names of the cards' nodes, in the order of their numbers."""
    try:
        names = [path.name for path in host.path("/dev").iterdir()]
    except OSError:
        return []
    found = [name for name in names if re.fullmatch(r"davinci\d+", name)]
    return sorted(found, key=lambda name: int(name.removeprefix("davinci")))


def driver_home(host: Host) -> Path:
    """Return the folder of the driver, whether it is there or not."""
    text = host.read("/etc/ascend_install.info")
    found = re.search(r"^Driver_Install_Path_Param=(\S+)", text, re.MULTILINE)
    return host.path(found[1] if found else "/usr/local/Ascend") / "driver"


def has_traces(host: Host) -> bool:
    """Whether anything of Ascend is on this machine."""
    return bool(
        card_nodes(host)
        or any(host.path(f"/dev/{name}").exists() for name in MANAGERS)
        or host.path("/usr/local/Ascend").is_dir()
        or driver_home(host).is_dir()
        or any(name.startswith("ASCEND_") for name in host.environ)
    )


def look_at_driver(host: Host) -> Iterator[Finding]:
    """Yield what is found of driver and firmware."""
    home, nodes = driver_home(host), card_nodes(host)
    version = version_in(home / "version.info")
    if version:
        yield Finding("ok", "driver", f"{version} in {home}")
    elif nodes:
        text = f"not in {home}; install it, or in a container mount it: {_MOUNT}"
        yield Finding("error", "driver", text)
    else:
        yield Finding("warning", "driver", "not installed: models can be converted, but not run")
    if version and (missing := _library(host, home)):
        yield missing
    firmware = version_in(home.parent / "firmware" / "version.info")
    if firmware:
        yield Finding("ok", "firmware", firmware)
    elif version:
        text = "its version is not to be seen here, as is usual in a container"
        yield Finding("ok", "firmware", text)


def _library(host: Host, home: Path) -> Finding | None:
    """Say what is wrong with the driver's library, the one that all others need."""
    places = [path.parent for path in home.glob("lib64/**/libascend_hal.so")]
    if not places:
        text = f"libascend_hal.so is not in {home / 'lib64'}: mount the whole driver: {_MOUNT}"
        return Finding("error", "driver library", text)
    listed = host.environ.get("LD_LIBRARY_PATH", "").split(":")
    cached = "".join(
        path.read_text(errors="replace")
        for path in sorted(host.path("/etc/ld.so.conf.d").glob("*.conf"))
        if path.is_file()
    )
    own = {f"/{place.relative_to(host.root)}" for place in places} | {str(p) for p in places}
    if not any(folder in listed or folder in cached for folder in own):
        shown = max(f"/{place.relative_to(host.root)}" for place in places)
        text = (
            f"libascend_hal.so is in {shown}, where the loader may not look: export "
            f"LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64/common:{shown}:$LD_LIBRARY_PATH"
        )
        return Finding("warning", "driver library", text)
    return None


def look_at_nodes(host: Host) -> Iterator[Finding]:
    """Yield what is found in /dev, and whether this user may use it."""
    nodes = card_nodes(host)
    managers = [name for name in MANAGERS if host.path(f"/dev/{name}").exists()]
    if not nodes:
        if managers or version_in(driver_home(host) / "version.info"):
            text = (
                f"there is no /dev/davinciN; start the container with {_FLAGS} (one davinciN for "
                "each card), or on the host look at `npu-smi info` and dmesg"
            )
            yield Finding("error", "cards", text)
        else:
            yield Finding("warning", "cards", "there is none here (no /dev/davinciN)")
        return
    listed = ", ".join(f"/dev/{name}" for name in nodes)
    yield Finding("ok", "cards", f"{len(nodes)}: {listed}")
    for name in MANAGERS:
        if name not in managers:
            text = f"/dev/{name} is missing; start the container with --device /dev/{name} as well"
            yield Finding("error", "device nodes", text)
    closed = [name for name in (*nodes, *managers) if not _may_use(host, host.path(f"/dev/{name}"))]
    if closed:
        yield Finding("error", "rights", _who_may(host, closed))
    else:
        yield Finding("ok", "rights", "this user may read and write all of them")


def _may_use(host: Host, path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    if host.uid == 0:
        return True
    mode = found.st_mode
    if found.st_uid == host.uid:
        return mode & (stat.S_IRUSR | stat.S_IWUSR) == stat.S_IRUSR | stat.S_IWUSR
    if found.st_gid in host.groups:
        return mode & (stat.S_IRGRP | stat.S_IWGRP) == stat.S_IRGRP | stat.S_IWGRP
    return mode & (stat.S_IROTH | stat.S_IWOTH) == stat.S_IROTH | stat.S_IWOTH


def _who_may(host: Host, names: list[str]) -> str:
    listed = ", ".join(f"/dev/{name}" for name in names)
    try:
        gid = host.path(f"/dev/{names[0]}").stat().st_gid
    except OSError as error:
        return f"{listed} cannot be looked at: {reason_of(error)}"
    group = _group_name(host, gid)
    if gid in host.groups or gid == 0:
        return f"this user may not read and write {listed}; their rights must be changed by root"
    return (
        f"this user may not read and write {listed}; join their group: "
        f"sudo usermod -aG {group} $USER, then log in again; in a container: --group-add {gid}"
    )


def _group_name(host: Host, gid: int) -> str:
    for line in host.read("/etc/group").splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(gid):
            return fields[0]
    if host.root == Path("/"):
        try:
            return grp.getgrgid(gid).gr_name
        except KeyError:
            pass
    return _GROUP


def look_at_acl(host: Host, said: Probe) -> Iterator[Finding]:
    """Yield what pyACL said."""
    if error := said.import_error:
        yield Finding("error", "acl", f"does not import: {error}; {_import_advice(error)}")
        return
    if not said.steps:
        ending = said.ending or "without a word"
        text = f"importing it ended its process: {ending}; look at driver and CANN versions"
        yield Finding("error", "acl", text)
        return
    where = said.step("import").get("file") or "built in"
    emulated = "EMULATED NPU, nothing runs on a card; " if host.is_emulated else ""
    yield Finding("ok", "acl", f"{emulated}imports, from {where}")
    yield from _codes(said)
    if said.soc:
        yield Finding("ok", "soc", f"{emulated}{said.soc}")
    for device in said.devices:
        if not device["code"] and not device["total"]:
            text = f"{emulated}ACL does not tell its memory: {_code_advice(0)}"
            yield Finding("warning", f"device {device['device']}", text)
        elif not device["code"]:
            free, total = sized(int(device["free"])), sized(int(device["total"]))
            text = f"{emulated}{free} free of {total} {device['kind']}"
            yield Finding("ok", f"device {device['device']}", text)
    if said.ending:
        last = said.steps[-1]["step"]
        text = (
            f"{said.ending}, behind its step {last!r}; look whether driver, firmware and CANN fit "
            "together, at `npu-smi info`, and for other processes on the card"
        )
        yield Finding("error", "acl", text)


def _codes(said: Probe) -> Iterator[Finding]:
    for step in said.steps:
        code = step.get("code", 0)
        if not code or (step["step"] == "init" and code == _ALREADY):
            continue
        what = f"device {step['device']}" if "device" in step else f"acl {step['step']}"
        yield Finding("error", what, f"{explain(code)}; {_code_advice(code)}")
    if said.step("count").get("count") == 0:
        text = "ACL sees none; look at ASCEND_RT_VISIBLE_DEVICES and the device nodes"
        yield Finding("error", "devices", text)


def _import_advice(error: str) -> str:
    if "libascend_hal" in error or "libdrv" in error:
        return (
            "the driver's libraries are not found: export LD_LIBRARY_PATH="
            "/usr/local/Ascend/driver/lib64/common:/usr/local/Ascend/driver/lib64/driver:"
            f"$LD_LIBRARY_PATH; in a container also mount them: {_MOUNT}"
        )
    if "GLIBC" in error or "ELF" in error or "undefined symbol" in error:
        return "CANN is for another system, architecture or Python; install the one that fits"
    return (
        "install CANN and run `source /usr/local/Ascend/ascend-toolkit/set_env.sh` before gepipe; "
        "in services, cron and IDEs as well"
    )


def _code_advice(code: int) -> str:
    if code in (507033, 507007, 507008):
        return (
            "driver, firmware and CANN do not fit together, or another container has the card: "
            "look at `npu-smi info` and the compatibility table of the CANN release"
        )
    if code in (107001, 207004):
        return "look at the device nodes, the driver, and ASCEND_RT_VISIBLE_DEVICES"
    if code == 207006:
        return "join the group of the device nodes (HwHiAiUser)"
    if code == 100039:
        return "take stub and devlib folders out of LD_LIBRARY_PATH"
    return "the log is in ~/ascend/log/debug/plog"
