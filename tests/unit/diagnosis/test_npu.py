from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from gepipe.cli.diagnosis import show_diagnosis
from gepipe.diagnosis.cards import has_traces
from gepipe.diagnosis.diagnose import diagnose, look_at_npu
from gepipe.diagnosis.finding import Host
from gepipe.diagnosis.probe import Probe, probe
from tests.unit.models.support import fake_cann, plain_environment

GOOD = Probe(
    (
        {"step": "import", "file": "/cann/acl.so"},
        {"step": "init", "code": 0},
        {"step": "count", "code": 0, "count": 2},
        {"step": "soc", "soc": "Ascend310P3"},
        {"step": "device", "device": 0, "code": 0, "free": 20 << 30, "total": 21 << 30,
         "kind": "DDR"},
        {"step": "end"},
    )
)  # fmt: skip
MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
HOME = "/usr/local/Ascend/ascend-toolkit/8.0.RC3"


@pytest.fixture
def tree(tmp_path):
    """Make the files of a machine with two cards where all is well."""
    (tmp_path / "dev").mkdir()
    for name in ("davinci0", "davinci1", *MANAGERS):
        (tmp_path / "dev" / name).touch()
        (tmp_path / "dev" / name).chmod(0o660)
    driver = tmp_path / "usr/local/Ascend/driver"
    (driver / "lib64/driver").mkdir(parents=True)
    (driver / "lib64/driver/libascend_hal.so").touch()
    (driver / "version.info").write_text("Version=24.1.rc3\nascendhal_version=7.35.19\n")
    (driver.parent / "firmware").mkdir()
    (driver.parent / "firmware/version.info").write_text("Version=7.5.0.1.129\n")
    fake_cann(tmp_path / HOME.lstrip("/"))
    (driver.parent / "ascend-toolkit/latest").symlink_to("8.0.RC3")
    kernels = tmp_path / HOME.lstrip("/") / "opp/built-in/op_impl/ai_core/tbe/kernel"
    (kernels / "ascend310p").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    gid = (tmp_path / "dev/davinci0").stat().st_gid
    (tmp_path / "etc/group").write_text(f"x:x:9:\nHwHiAiUser:x:{gid}:\n")
    return tmp_path


@pytest.fixture
def host(tree):
    environ = {
        "ASCEND_HOME_PATH": HOME,
        "ASCEND_OPP_PATH": f"{HOME}/opp",
        "LD_LIBRARY_PATH": f"{HOME}/lib64:/usr/local/Ascend/driver/lib64/driver",
    }
    return Host(
        tree, environ, uid=0, groups=frozenset(), python=(3, 10),
        package_version=lambda name: {"numpy": "1.26.4"}.get(name, "1.0"),
        ask_acl=lambda _: GOOD,
    )  # fmt: skip


def found(host: Host, what: str):
    return [(state, text) for state, name, text in look_at_npu(host) if name == what]


def states(host: Host) -> set[str]:
    return {state for state, _, _ in look_at_npu(host)}


def test_where_all_is_well_every_line_is_ok(host):
    findings = list(look_at_npu(host))

    assert {f.state for f in findings} == {"ok"}, [f for f in findings if f.state != "ok"]
    by_name = {f.what: f.text for f in findings}
    assert by_name["npu"] == "2 x Ascend310P3 can be used"
    assert by_name["driver"].startswith("24.1.rc3")
    assert by_name["firmware"] == "7.5.0.1.129"
    assert "CANN 8.0.RC3" in by_name["cann"]
    assert by_name["device 0"] == "20.0 GiB free of 21.0 GiB DDR"


def test_nothing_of_ascend_is_one_line(tmp_path):
    host = Host(tmp_path, {}, ask_acl=lambda _: pytest.fail("there is nothing to ask"))

    ((state, what, _),) = look_at_npu(host)

    assert (state, what) == ("ok", "npu")


def test_missing_device_nodes_name_the_flags(host, tree):
    for name in ("davinci0", "davinci1"):
        (tree / "dev" / name).unlink()
    ((state, text),) = found(host, "cards")
    assert state == "error"
    assert "--device /dev/davinci_manager" in text

    (tree / "dev/davinci0").touch()
    (tree / "dev/hisi_hdc").unlink()
    ((state, text),) = found(host, "device nodes")
    assert state == "error"
    assert "--device /dev/hisi_hdc" in text


def test_rights_name_the_group_to_join(host, tree):
    gid = (tree / "dev/davinci0").stat().st_gid
    other = replace(host, uid=12345)

    ((state, text),) = found(other, "rights")
    assert state == "error"
    if gid:
        assert (
            f"usermod -aG HwHiAiUser $USER, then log in again; in a container: --group-add {gid}"
            in text
        )
    assert found(replace(other, groups=frozenset([gid])), "rights")[0][0] == "ok"
    for path in (tree / "dev").iterdir():
        path.chmod(0o640)
    assert found(replace(other, groups=frozenset([gid])), "rights")[0][0] == "error"
    for path in (tree / "dev").iterdir():
        path.chmod(0o666)
    assert found(other, "rights")[0][0] == "ok"


def test_a_driver_that_is_not_mounted(host, tree):
    (tree / "usr/local/Ascend/driver/lib64/driver/libascend_hal.so").unlink()
    assert found(host, "driver library")[0][0] == "error"
    (tree / "usr/local/Ascend/driver/version.info").unlink()
    ((state, text),) = found(host, "driver")
    assert state == "error"
    assert "-v /usr/local/Ascend/driver:" in text


def test_a_driver_that_the_loader_does_not_find(host, tree):
    environ = {**host.environ, "LD_LIBRARY_PATH": ""}
    assert found(replace(host, environ=environ), "driver library")[0][0] == "warning"
    (tree / "etc/ld.so.conf.d").mkdir()
    (tree / "etc/ld.so.conf.d/ascend.conf").write_text("/usr/local/Ascend/driver/lib64/driver\n")
    assert not found(replace(host, environ=environ), "driver library")


def test_the_driver_may_be_elsewhere(host, tree):
    (tree / "opt").mkdir()
    (tree / "usr/local/Ascend/driver").rename(tree / "opt/driver")
    (tree / "etc/ascend_install.info").write_text("Driver_Install_Path_Param=/opt\n")

    assert found(host, "driver")[0][0] == "ok"


def test_two_installations_and_mixed_paths_are_warned_of(host, tree):
    other = "/usr/local/Ascend/ascend-toolkit/7.0.0"
    fake_cann(tree / other.lstrip("/"), "7.0.0")
    ((state, text),) = found(host, "cann")
    assert state == "warning"
    assert "7.0.0" in text
    assert "8.0.RC3" in text

    environ = {**host.environ, "PYTHONPATH": f"{other}/python/site-packages"}
    ((state, text),) = found(replace(host, environ=environ), "environment")
    assert state == "warning"
    assert "of another CANN" in text


def test_an_environment_that_is_not_set_names_the_script(host, tree):
    script = tree / "usr/local/Ascend/ascend-toolkit/set_env.sh"
    script.touch()

    ((state, text),) = found(replace(host, environ={}), "environment")

    assert state == "warning"
    assert "source /usr/local/Ascend/ascend-toolkit/set_env.sh" in text


WAYS = {
    "gone": lambda _: None,
    "empty": lambda path: path.touch(),
    "folder": lambda path: path.mkdir(),
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("/nowhere/at/all"),
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_part_of_an_installation_is_broken_the_rest_is_told(host, tree, way):
    paths = sorted(tree.rglob("*"))
    spare = tree.with_name(f"{tree.name}-spare")

    for path in paths:
        path.rename(spare)
        WAYS[way](path)
        findings = list(look_at_npu(host))
        assert findings[0].what == "npu", path
        assert any(finding.what == "acl" for finding in findings) or not has_traces(host), path
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        spare.rename(path)

    assert states(host) == {"ok"}  # all of it is as it was


def test_a_card_whose_memory_is_not_told_is_a_warning(host):
    steps = [{**step, "free": 0, "total": 0} if "total" in step else step for step in GOOD.steps]

    ((state, text),) = found(replace(host, ask_acl=lambda _: Probe(tuple(steps))), "device 0")

    assert state == "warning"
    assert "does not tell its memory" in text


def test_stub_libraries_and_a_missing_operator_package(host):
    environ = {
        **host.environ,
        "LD_LIBRARY_PATH": f"{HOME}/devlib:/usr/local/Ascend/driver/lib64/driver",
        "ASCEND_OPP_PATH": "/nowhere",
    }
    changed = replace(host, environ=environ)

    assert "100039" in found(changed, "environment")[-1][1]
    assert found(changed, "operators")[0][0] == "error"


def test_kernels_of_another_chip(host):
    other = replace(GOOD, steps=(*GOOD.steps, {"step": "soc", "soc": "Ascend910B3"}))

    ((state, text),) = found(replace(host, ask_acl=lambda _: other), "kernels")

    assert state == "warning"
    assert "Ascend-cann-kernels-910b" in text


def test_python_and_numpy_too_new_for_cann(host):
    newer = replace(host, python=(3, 13), package_version=lambda _: "2.1.0")

    assert found(newer, "python and cann")[0][0] == "warning"
    assert "numpy<2" in found(newer, "numpy and cann")[0][1]
    assert not found(host, "python and cann")


@pytest.mark.parametrize(
    ("listed", "state", "words"),
    [
        ("0,1", "ok", "leaves 2 of 2"),
        ("1", "ok", "leaves 1 of 2"),
        ("1,0", "warning", "leaves 1 of 2"),
        ("0, 1", "warning", "leaves 1 of 2"),
        ("7", "warning", "leaves 0 of 2"),
    ],
)
def test_visible_devices(host, listed, state, words):
    environ = {**host.environ, "ASCEND_RT_VISIBLE_DEVICES": listed}

    ((said, text),) = found(replace(host, environ=environ), "visible devices")

    assert said == state
    assert words in text


@pytest.mark.parametrize(
    ("steps", "ending", "what", "words"),
    [
        ([{"step": "import", "error": "ImportError: libascend_hal.so: cannot open"}], "", "acl",
         "driver/lib64/common"),
        ([{"step": "import", "error": "ModuleNotFoundError: No module named 'acl'"}], "", "acl",
         "set_env.sh"),
        ([], "the process was ended by SIGSEGV", "acl", "SIGSEGV"),
        ([*GOOD.steps[:2]], "it hangs: nothing more within 60 s", "acl", "hangs"),
        ([GOOD.steps[0], {"step": "init", "code": 500000}], "", "acl init", "500000"),
        ([*GOOD.steps[:4], {"step": "device", "device": 0, "code": 507033}], "", "device 0",
         "do not fit together"),
        ([*GOOD.steps[:2], {"step": "count", "code": 0, "count": 0}], "", "devices",
         "ASCEND_RT_VISIBLE_DEVICES"),
    ],
)  # fmt: skip
def test_what_pyacl_says_is_explained(host, steps, ending, what, words):
    changed = replace(host, ask_acl=lambda _: Probe(tuple(steps), ending))

    said = found(changed, what)

    assert ("error", True) in [(state, words in text) for state, text in said]
    assert found(changed, "npu")[0][0] == "warning"


def test_a_repeated_initialisation_is_no_fault(host):
    steps = (GOOD.steps[0], {"step": "init", "code": 100002}, *GOOD.steps[2:])

    assert states(replace(host, ask_acl=lambda _: Probe(steps))) == {"ok"}


def test_a_machine_that_only_converts_has_no_errors(host, tree):
    for path in (tree / "dev").iterdir():
        path.unlink()
    (tree / "usr/local/Ascend/driver/version.info").unlink()
    broken = Probe(({"step": "import", "error": "libascend_hal.so"},))

    assert "error" not in states(replace(host, ask_acl=lambda _: broken))


def test_the_emulator_is_announced_in_each_of_its_lines():
    environ = plain_environment(GEPIPE_ACL="emulator")
    said = list(look_at_npu(Host(environ=environ)))

    assert {f.what for f in said} >= {"npu", "acl", "soc", "device 0"}
    assert all("EMULATED" in f.text for f in said)
    assert {f.state for f in said} == {"ok"}


@pytest.mark.parametrize(
    ("program", "words", "timeout_s"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV", 60),
        ("import threading; threading.Event().wait(600)", "hangs", 1),
        ("raise ImportError('libascendcl.so: cannot open shared object file')", "libascendcl", 60),
        ("x = 1", "not pyACL", 60),
        ("print('a line without an end', end=''); raise ImportError('libx.so')", "libx.so", 60),
    ],
)
def test_an_acl_that_breaks_breaks_only_its_own_process(tmp_path, program, words, timeout_s):
    (tmp_path / "acl.py").write_text(program)

    said = probe(plain_environment(PYTHONPATH=str(tmp_path)), timeout_s=timeout_s)

    assert words in said.ending + said.import_error


def test_an_acl_that_ends_its_process_without_a_word_is_told(host, tmp_path):
    (tmp_path / "acl.py").write_text("import os; os._exit(0)")
    said = probe(plain_environment(PYTHONPATH=str(tmp_path)))

    ((state, text),) = found(replace(host, ask_acl=lambda _: said), "acl")

    assert state == "error"
    assert "ended its process: without a word" in text


def test_limits_of_the_container(tmp_path):
    cgroup = tmp_path / "sys/fs/cgroup"
    cgroup.mkdir(parents=True)
    (cgroup / "memory.max").write_text(str(700 << 20))
    (cgroup / "memory.current").write_text(str(200 << 20))
    (cgroup / "pids.max").write_text("64\n")
    (cgroup / "cpu.max").write_text("50000 100000\n")

    said = {f.what: f for f in diagnose(Host(tmp_path, {}))}

    assert said["memory"].state == "warning"
    assert "700.0 MiB" in said["memory"].text
    assert said["processes"].state == "warning"
    assert said["processors"].text.startswith("1 to use")


def test_extras_that_are_missing_are_said_and_no_error(host):
    lacking = replace(host, package_version=lambda name: None if name == "av" else "1.0")

    said = {f.what: f for f in diagnose(lacking)}

    text = "not installed; only needed for videos: pip install 'gepipe[video]'"
    assert (said["av"].state, said["av"].text) == ("ok", text)
    assert [said[name].text for name in ("supervision", "tokenizers", "tritonclient")] == [
        "1.0"
    ] * 3


def test_the_exit_code_is_2_where_something_is_wrong(host, capsys):
    assert show_diagnosis(as_json=True, host=host) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True

    old = {"numpy": "1.26.4", "pyarrow": "26.0"}
    changed = replace(host, package_version=lambda name: old.get(name, "1.0"))
    assert show_diagnosis(as_json=False, host=changed) == 2
    assert "pyarrow<26" in capsys.readouterr().out
    missing = replace(host, package_version=lambda name: None if name == "pillow" else "1.0")
    assert show_diagnosis(as_json=False, host=missing) == 2
    assert os.environ.get("GEPIPE_ACL") is None
