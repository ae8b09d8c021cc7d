"""A stand-in for atc: checks its arguments as atc does, and fails in the ways that are known."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ATC = r"""#!{python}
import json, os, re, signal, sys, threading

KNOWN = {
    "framework", "model", "output", "soc_version", "input_format", "input_shape",
    "dynamic_batch_size", "dynamic_image_size", "dynamic_dims", "insert_op_conf", "output_type",
    "precision_mode", "log", "external_weight",
}

def fail(code, text):
    print("ATC run failed, Please check the detail log, Try 'atc --help' for more information")
    print(f"{code}: {text}")
    raise SystemExit(1)

args = {}
for arg in sys.argv[1:]:
    name, sign, value = arg.partition("=")
    if not name.startswith("--") or not sign:
        fail("E10001", f"Value {arg} for parameter is invalid.")
    args[name[2:]] = value
for name in args:
    if name not in KNOWN:
        fail("E10001", f"Value {name} for parameter is invalid. Reason: unknown option")
for name in ("framework", "model", "output", "soc_version"):
    if name not in args:
        fail("E10007", f"[--{name}] is required.")
if args["framework"] != "5":
    fail("E10041", "Failed to load model")
kinds = [k for k in ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims") if k in args]
if len(kinds) > 1:
    fail("E10009", "dynamic_batch_size, dynamic_image_size are mutually exclusive")
shapes = {}
for each in args["input_shape"].split(";"):
    name, _, extents = each.rpartition(":")
    shapes[name] = extents.split(",")
opened = [n for shape in shapes.values() for n in shape if n == "-1"]
if opened and not kinds:
    fail("E10011", "input_shape has -1 but no dynamic option")
if kinds:
    groups = args[kinds[0]].split("," if kinds[0] == "dynamic_batch_size" else ";")
    if len(groups) < 2:
        fail("E10035", f"[--{kinds[0]}] has too few gears")
    if len(groups) > 100:
        fail("E10036", f"[--{kinds[0]}] has too many gears")
    if kinds[0] == "dynamic_batch_size" and any("-1" in s[1:] for s in shapes.values()):
        fail("E10018", "only N may be -1")
    if kinds[0] == "dynamic_dims":
        if args["input_format"] != "ND":
            fail("E10001", "input_format must be ND")
        if any(len(group.split(",")) != len(opened) for group in groups):
            fail("E10001", "dynamic_dims does not fit")
    if kinds[0] == "dynamic_image_size" and args["input_format"] not in ("NCHW", "NHWC"):
        fail("E10001", "input_format must be NCHW or NHWC")
if not re.fullmatch("Ascend(310P3|910B3)", args["soc_version"]):
    print(f"soc_version [{args['soc_version']}] is invalid")
    raise SystemExit(1)
if "ASCEND_OPP_PATH" not in os.environ:
    fail("E10501", "OpType Conv is not registered")
if "insert_op_conf" in args and not open(args["insert_op_conf"]).read().startswith("aipp_op {"):
    fail("E10001", "insert_op_conf")

for name in ("model", "output"):
    if not re.fullmatch(r"[\w./-]+", args[name]):
        fail("E13000", f"Path[{args[name]}] is invalid")
if "FAKE_ATC_PID" in os.environ:
    open(os.environ["FAKE_ATC_PID"] + ".part", "w").write(str(os.getpid()))
    os.rename(os.environ["FAKE_ATC_PID"] + ".part", os.environ["FAKE_ATC_PID"])
way = os.environ.get("FAKE_ATC", "")
if way == "kernel":
    fail("EZ3003", "No supported Ops kernel and engine are found for [Einsum_3], optype [Einsum].")
elif way == "numpy":
    fail("EC0010", "Failed to import Python module [AttributeError: `np.float_` was removed].")
elif way == "inner":
    fail("EZ9999", "Inner Error!")
elif way == "library":
    print("atc: error while loading shared libraries: libascendcl.so: cannot open shared object")
    raise SystemExit(127)
elif way == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
elif way == "hang":
    threading.Event().wait(60)
elif way == "nothing":
    print("ATC run success")
    raise SystemExit
elif way == "silent":
    print("something else")
    raise SystemExit(3)

os.makedirs("kernel_meta", exist_ok=True)
open("fusion_result.json", "w").write("[]")
if os.environ.get("FAKE_ATC_CALLS"):
    with open(os.environ["FAKE_ATC_CALLS"], "a") as calls:
        beside = sorted(os.listdir(os.path.dirname(os.path.realpath(args["model"]))))
        calls.write(json.dumps({**args, "beside": beside}) + "\n")
threading.Event().wait(float(os.environ.get("FAKE_ATC_S", "0")))
if args.get("external_weight") == "1":
    os.makedirs(os.path.dirname(args["output"]) + "/weight")
    open(os.path.dirname(args["output"]) + "/weight/weight_1f", "w").write("w" * 1000)
suffix = "_linux_x86_64" if way == "suffix" else ""
payload = b"\0" * 64 + b"soc_version\x12\x0c" + args["soc_version"].encode() + b"\0" * 100
header = bytearray(256)
header[:12] = b"IMOD" + (256).to_bytes(4, "little") + (0x20000000).to_bytes(4, "little")
header[82] = 1
header[184:192] = len(payload).to_bytes(8, "little")
open(args["output"] + suffix + ".om", "wb").write(bytes(header) + payload)
print("ATC run success, welcome to the next use.")
"""


def fake_cann(home: Path, version: str = "8.0.RC3") -> Path:
    """Put a CANN with the stand-in into a folder."""
    (home / "bin").mkdir(parents=True)
    (home / "opp").mkdir()
    info = home / "x86_64-linux" / "ascend_toolkit_install.info"
    info.parent.mkdir()
    info.write_text(f"package_name=Ascend-cann-toolkit\nversion={version}\narch=x86_64\n")
    atc = home / "bin" / "atc"
    atc.write_text(ATC.replace("{python}", sys.executable))
    atc.chmod(0o755)
    return atc


def plain_environment(**extra: str) -> dict[str, str]:
    """Return an environment without anything of CANN."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ASCEND", "GEPIPE", "FAKE"))
    }
    return kept | extra
