"""The measurement as it runs on a host: isolated, with a fake NVML and a captured tree, and without a GPU."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from ktfleet.config import Gpu
from ktfleet.judge.gpu import judge
from ktfleet.measure import gpu, gpu_record
from ktfleet.measure.gpu_record import Record
from tests.trees import link, put

SOURCE = Path(gpu.__file__)
V, K = "580.159.04", "6.8.0-85-generic"
BUS = "0000:65:00.0"
DEVICE = f"/sys/bus/pci/devices/{BUS}"

PYNVML = """
class NVMLError(Exception):
    pass

class NVMLError_NotSupported(NVMLError):
    def __str__(self):
        return "Not Supported"

class NVMLError_DriverNotLoaded(NVMLError):
    def __str__(self):
        return "Driver Not Loaded"

class Some:
    def __init__(self, **fields):
        self.__dict__.update(fields)

ANSWERS = {
    "Name": b"NVIDIA GeForce RTX 5090", "UUID": "GPU-0", "PciInfo": Some(busId=b"00000000:65:00.0"),
    "CudaComputeCapability": (12, 0), "MemoryInfo": Some(total=32607 << 20), "BAR1MemoryInfo": Some(bar1Total=1 << 28),
    "MaxPcieLinkWidth": 16, "MaxPcieLinkGeneration": 3, "GpuMaxPcieLinkGeneration": 5, "PersistenceMode": 1,
    "EnforcedPowerLimit": 575000, "PowerManagementDefaultLimit": 575000, "MaxClockInfo": 14001, "EccMode": [0, 0],
    "ClockInfo": 13801, "PowerUsage": 90000, "Temperature": 40, "CurrentClocksEventReasons": 1,
    "ComputeRunningProcesses": [Some(pid=4242, usedGpuMemory=1 << 20)], "GraphicsRunningProcesses": [],
    "MemoryAffinity": [2],
}

def nvmlInit():
    pass

def nvmlSystemGetDriverVersion():
    return b"580.159.04"

def nvmlSystemGetNVMLVersion():
    return "13.580.159.04"

def nvmlSystemGetCudaDriverVersion():
    return 13000

def nvmlDeviceGetCount():
    return 1

def nvmlDeviceGetHandleByIndex(index):
    return index

def __getattr__(name):
    def getter(*arguments):
        key = name.replace("nvmlDeviceGet", "")
        if key not in ANSWERS:
            raise NVMLError_NotSupported()
        return ANSWERS[key]
    if not name.startswith("nvmlDeviceGet"):
        raise AttributeError(name)
    return getter
"""

PROGRAM = """#!/bin/sh
sleep 0.2
echo '{"wrong": 0, "launches": 7, "seconds": 2.0, "architecture": 1200, "to_card_gb_s": 12.5}'
"""

NVCC = """#!/bin/sh
case "$1" in
--version) echo "Cuda compilation tools, release 12.9, V12.9.86" ;;
--list-gpu-arch) echo compute_90; echo compute_120 ;;
*) while [ "$1" != -o ]; do shift; done; cp "${0%/*}/program" "$2" ;;
esac
"""

MODINFO = f"""#!/bin/sh
[ "$2" = {K} ] || {{ echo "modinfo: ERROR: Module nvidia not found."; exit 1; }}
echo "filename:       /lib/modules/{K}/kernel/nvidia.ko"
echo "version:        {V}"
echo "license:        Dual MIT/GPL"
"""

JOURNAL = """#!/bin/sh
cat <<END
Linux version 6.8.0
usb 1-1: new device
NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04
NVRM: Xid (PCI:0000:65:00): 31, pid=1, name=python
NVRM: Xid (PCI:0000:65:00): 31, pid=2, name=python
NVRM: Xid (0000:65:00): 79, GPU has fallen off the bus.
END
"""

LOGIN = """#!/bin/sh
printf 'Welcome\\n@PATH=%s\\n@CUDA_HOME=/usr' "$PATH"
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A folder with tree/ (a captured workstation), bin/ (its programs), cuda/, nvml/."""
    tree, tools = tmp_path / "tree", tmp_path / "bin"
    files = {"vendor": "0x10de", "class": "0x030000", "device": "0x2b85", "numa_node": "1", "current_link_width": "16",
             "current_link_speed": "8.0 GT/s PCIe"}  # fmt: skip
    for name, text in files.items():
        put(tree, f"{DEVICE}/{name}", text + "\n")
    link(tree, f"{DEVICE}/driver", "../../../bus/pci/drivers/nvidia")
    put(tree, "/sys/bus/pci/devices/0000:65:00.1/vendor", "0x10de\n")
    put(tree, "/sys/bus/pci/devices/0000:65:00.1/class", "0x040300\n")
    put(tree, "/sys/module/nvidia/version", V + "\n")
    put(tree, "/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {V}\nGCC\n")
    put(tree, "/proc/sys/kernel/osrelease", K + "\n")
    put(tree, "/proc/4242/comm", "python3\n")
    put(tree, "/proc/4242/cgroup", "0::/system.slice/ktfleet-server.service\n")
    put(tree, "/sys/devices/system/node/online", "0-1\n")
    put(tree, "/boot/vmlinuz-6.8.0-9-generic", "")
    put(tree, f"/boot/vmlinuz-{K}", "")
    put(tree, gpu.SECURE_BOOT, b"\x06\x00\x00\x00\x00")
    put(tree, f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{V}", "")
    link(tree, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", f"libnvidia-ml.so.{V}")
    put(tree, "/etc/environment", f'PATH="{tools}:/usr/bin:/bin"\nCUDA_HOME=/usr\n')
    for name, text in {"modinfo": MODINFO, "journalctl": JOURNAL, "sh": LOGIN, "nvcc": NVCC}.items():
        program(tools / name, text.replace("#!/bin/sh", "#!" + shutil.which("sh", path="/bin:/usr/bin")))
    program(tmp_path / "cuda/bin/nvcc", NVCC)
    program(tmp_path / "cuda/bin/program", PROGRAM)
    (tmp_path / "nvml").mkdir()
    (tmp_path / "nvml/pynvml.py").write_text(PYNVML)
    return tmp_path


def measure(host: Path, *options: str, pynvml: bool = True) -> dict[str, Any]:
    """Run the measurement in an interpreter of its own, as on a host."""
    nvml = ("--pynvml", str(host / "nvml")) if pynvml else ()
    command = [sys.executable, "-I", "-S", str(SOURCE), "--root", str(host / "tree"), "--toolkit", str(host / "cuda")]
    env = {**os.environ, "PATH": f"{host / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run([*command, *nvml, *options], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    data: dict[str, Any] = json.loads(done.stdout)
    Record.model_validate(data)
    return data


def test_a_captured_workstation_under_load(host: Path) -> None:
    seen = Record.model_validate(measure(host, "--load"))
    (card,) = seen.cards or ()
    assert (card.name, card.bus, card.capability) == ("NVIDIA GeForce RTX 5090", BUS, (12, 0))
    assert (card.numa_node, card.bar1_bytes, card.persistence) == (1, 1 << 28, True)
    assert card.busy is not None
    assert (card.busy.link_width, card.busy.link_generation, card.busy.memory_mhz) == (16, 3, 13801)
    assert [(p.name, p.unit) for p in card.processes or ()] == [("python3", "ktfleet-server.service")]
    assert card.run is not None
    assert card.run.result is not None
    assert card.run.result.launches == 7
    assert seen.driver.newest_kernel == K, "9 is older than 85"
    assert (seen.driver.loaded, seen.driver.library, seen.driver.nvml) == (V, V, V)
    assert (seen.driver.flavour, seen.driver.secure_boot, seen.driver.module_load) == ("open", False, None)
    assert [(device.address, device.driver) for device in seen.driver.pci or ()] == [(BUS, "nvidia")]
    assert seen.unreadable["cards.0.vbios"] == "Not Supported"


def test_what_it_measures_is_judged(host: Path) -> None:
    found = {verdict.key: verdict for verdict in judge(Gpu(), Record.model_validate(measure(host, "--load")))}
    bad = {key: verdict.result for key, verdict in found.items() if not verdict.good}
    assert bad == {"gpu Xids": "fail", "CUDA_HOME": "fail"}
    assert "remove it from /etc/environment" in str(found["CUDA_HOME"])


def test_the_kernel_log_is_sorted_into_codes_and_lines(host: Path) -> None:
    log = measure(host)["kernel_log"]
    assert (log["source"], log["whole"]) == ("journal", True)
    assert [(xid["code"], xid["count"], xid["bus"]) for xid in log["xids"]] == [
        (31, 2, "0000:65:00"), (79, 1, "0000:65:00"),
    ]  # fmt: skip
    assert len(log["lines"]) == 1


def test_without_a_journal_the_ring_buffer_is_read(host: Path) -> None:
    program(host / "bin/journalctl", "#!/bin/false\n")
    put(host / "tree", "/dev/kmsg", "6,1,0,-;Linux version 6.8\n4,9,12,-;NVRM: Xid (PCI:0000:65:00): 48, x\n KEY=1\n")
    log = measure(host)["kernel_log"]
    assert (log["source"], log["whole"], [xid["code"] for xid in log["xids"]]) == ("/dev/kmsg", True, [48])


def test_a_kernel_without_a_module_is_found(host: Path) -> None:
    put(host / "tree", "/boot/vmlinuz-6.8.0-90-generic", "")
    driver = measure(host)["driver"]
    assert driver["module"]["found"]
    assert driver["next_module"] == {
        "kernel": "6.8.0-90-generic", "found": False, "version": None, "license": None, "signer": None,
    }  # fmt: skip


def test_a_card_without_a_driver_gets_modprobe_and_its_words_are_kept(host: Path) -> None:
    (host / "tree" / DEVICE.strip("/") / "driver").unlink()
    program(host / "bin/modprobe", "#!/bin/sh\necho 'could not insert: Key was rejected by service'; exit 1\n")
    driver = measure(host)["driver"]
    assert driver["pci"][0]["driver"] is None
    assert driver["module_load"] == "could not insert: Key was rejected by service"


def test_minus_one_in_sysfs_is_asked_of_nvml(host: Path) -> None:
    put(host / "tree", f"{DEVICE}/numa_node", "-1\n")
    assert measure(host)["cards"][0]["numa_node"] == 1
    put(host / "tree", "/sys/devices/system/node/online", "0\n")
    assert measure(host)["cards"][0]["numa_node"] == 0
    put(host / "tree", "/sys/devices/system/node/online", "0-1\n")
    (host / "nvml/pynvml.py").write_text(PYNVML.replace('"MemoryAffinity": [2]', '"MemoryAffinity": [3]'))
    data = measure(host)
    assert data["cards"][0]["numa_node"] is None
    assert "0x3" in data["unreadable"]["cards.0.numa_node"]


@pytest.mark.parametrize(("old", "new", "key", "reason"), [
    ("    pass\n\ndef nvmlSys", "    raise NVMLError_DriverNotLoaded()\n\ndef nvmlSys", "nvml", "Driver Not Loaded"),
    ("    return 1\n", "    return 0\n", "cards", "No devices were found"),
    ("    return index", "    raise ValueError('GPU is lost')", "cards.0", "GPU is lost"),
    ("class Some", "raise SystemError('broken')\nclass Some", "pynvml", "broken"),
])  # fmt: skip
def test_nvml_may_fail_anywhere(host: Path, old: str, new: str, key: str, reason: str) -> None:
    (host / "nvml/pynvml.py").write_text(PYNVML.replace(old, new))
    data = measure(host, "--load")
    assert data["unreadable"].get(key, "") == reason


def test_a_build_that_fails_keeps_its_words(host: Path) -> None:
    program(host / "cuda/bin/nvcc", NVCC.replace("*) while", "*) echo 'error: unsupported GNU version'; exit 1; while"))
    data = measure(host, "--load")
    assert (data["kernel_build"]["built"], data["kernel_build"]["text"]) == (False, "error: unsupported GNU version")
    assert data["cards"][0]["run"] is None


def test_a_program_that_fails_keeps_its_words(host: Path) -> None:
    program(host / "cuda/bin/program", "#!/bin/sh\necho 'no kernel image is available'; exit 1\n")
    assert measure(host, "--load")["cards"][0]["run"] == {
        "exit": 1, "result": None, "text": "no kernel image is available",
    }  # fmt: skip


def test_without_a_toolkit_that_is_the_reason(host: Path) -> None:
    shutil.rmtree(host / "cuda")
    data = measure(host, "--load")
    assert data["unreadable"][f"{host}/cuda/bin/nvcc"] == "no such program"
    assert data["unreadable"]["kernel_build"] == "no nvcc to build it with"


def test_nothing_at_all(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    data = measure(tmp_path, "--load", pynvml=False)
    assert data["cards"] is None
    assert "pynvml" in data["unreadable"]["pynvml"]
    assert not [
        v for v in judge(Gpu(), Record.model_validate(data)) if v.result == "pass" and v.key.startswith("gpu P")
    ]


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a GPU")
def test_this_machine_without_a_gpu() -> None:
    """With the real pynvml."""
    folder = str(distribution("nvidia-ml-py").locate_file(""))
    data = gpu.collect(pynvml=folder)
    assert (data["cards"], data["driver"]["nvml_error"]) == (None, "LibraryNotFound")
    assert data["unreadable"]["nvml"] == "NVML Shared Library Not Found"


def test_a_slow_program_is_stopped() -> None:
    with pytest.raises(gpu.Unreadable, match="took longer than 0 s"):
        gpu.run(["sleep", "60"], 0.1)


def test_both_schemas_agree() -> None:
    assert gpu.SCHEMA == gpu_record.SCHEMA


def test_keys_are_exactly_those_of_the_record(host: Path) -> None:
    data = measure(host, "--load")
    assert {*data} == {field.alias or name for name, field in Record.model_fields.items()}
    assert {*data["driver"]} == {*gpu_record.Driver.model_fields}
    assert {*data["cards"][0]["busy"]} == {*gpu_record.Sample.model_fields}
    assert {*gpu_record.Card.model_fields} <= {*data["cards"][0]}


def test_it_is_python_3_8_and_stdlib_only() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 8))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)
    newer = ("removeprefix", "removesuffix", "zip(strict")
    assert not [word for word in newer if word in SOURCE.read_text()]


@pytest.mark.skipif(not os.access("/usr/local/cuda/bin/nvcc", os.X_OK), reason="no CUDA compiler here")
def test_the_kernel_compiles_for_the_wanted_card(tmp_path: Path) -> None:
    built = gpu.build("/usr/local/cuda/bin/nvcc", Gpu().architecture, str(tmp_path))
    assert built["built"], built["text"]
