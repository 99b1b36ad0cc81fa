"""Measure a host's GPU, its driver and its CUDA toolkit; print one line of JSON: the keys of `gpu_record.Record`.

Runs on the host by itself: `python3 -I gpu.py [--toolkit DIR] [--arch 120a] [--load]`. So: Python >= 3.8, the
standard library and pynvml (beside this file, in --pynvml's folder, or installed), nothing of ktfleet. It
decides nothing and never raises: what cannot be had is null, and `unreadable` says why, keyed by the
field ("cards.0.persistence"), by the file or by the program. NVML tells less on a GeForce card than on others:
"Not Supported" is an answer. It changes nothing, except that it loads the NVIDIA module when no card has a driver,
as nvidia-smi does. With --load it also builds gpu.cu and keeps each card busy for two seconds: the PCIe link of an
idle card slows down, so only a busy card shows what the link can do.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

SCHEMA = 1
HERE = os.path.dirname(os.path.abspath(__file__))
READ_LIMIT = 1 << 16
"""Bytes of one file, and of one program's output that is kept."""
LINES = 60
"""Distinct lines of the kernel log that are kept from its start, and as many from its end."""
BUSY_S = 2.0
SAMPLE_S = 0.05
SHORT_S, LONG_S = 15, 180
"""Seconds that a program may take: one that answers, one that compiles or computes."""
NVIDIA, DISPLAY = "0x10de", "0x03"
"""PCI vendor; the class of display devices begins so (a card's audio device has another)."""
GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""Of PCIe, by the GT/s of a lane."""
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ABOUT_THE_CARD = re.compile(r"NVRM|nvidia|nouveau|nova_core|Loading of (?:unsigned )?module|module verification", re.I)
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d{1,4})")
"""As the driver prints it: NVRM: Xid (PCI:0000:65:00): 79, ..."""


class Unreadable(ValueError):
    """Why a value could not be had; the text is what `unreadable` shows."""


def why(error: Exception) -> str:
    """One line for `unreadable`."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return " ".join(str(error).split())[:300] or type(error).__name__


class Measurement:
    """Reads files below `root`, runs programs, collects the reasons."""

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self.unreadable: dict[str, str] = {}

    def get(self, key: str, read: Callable[..., Any], *arguments: Any) -> Any:
        """What `read` returns, or None and a reason. pynvml raises whatever it likes."""
        try:
            return read(*arguments)
        except Exception as error:
            self.unreadable[key] = why(error)
            return None

    def place(self, path: str) -> str:
        """Where the host's `path` lies here."""
        return os.path.join(self.root, path.lstrip("/"))

    def text(self, path: str) -> str:
        """The stripped text of a small file."""
        with open(self.place(path), encoding="utf-8", errors="replace") as file:
            return file.read(READ_LIMIT).strip()

    def names(self, path: str) -> list[str]:
        """Sorted names in a folder; none when there is no such folder."""
        try:
            return sorted(os.listdir(self.place(path)))
        except OSError:
            return []

    def number(self, path: str) -> int:
        """A file with one decimal number."""
        return int(self.text(path))


def run(command: Sequence[str], limit_s: float, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and output of a program, which is killed with its children after `limit_s` seconds."""
    surroundings = {**os.environ, "LC_ALL": "C", "PATH": os.environ.get("PATH", "") + ":" + SYSTEM_PATH}
    process = start(command, surroundings if env is None else env)
    try:
        output = process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        stop(process)
        raise Unreadable("%s took longer than %d s" % (command[0], limit_s)) from None
    return process.returncode, output.decode("utf-8", "replace")


def start(command: Sequence[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    """A program in a process group of its own, both outputs in one."""
    try:
        return subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise Unreadable("%s: %s" % (command[0], why(error))) from None


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and what it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


# --- the driver


def read_module(kernel: str) -> dict[str, Any]:
    """The NVIDIA module on disk for one installed kernel, as modinfo(8) tells. `found`: whether there is one."""
    code, output = run(["modinfo", "-k", kernel, "nvidia"], SHORT_S)
    if code and "not found" not in output:
        raise Unreadable(output.strip()[:300])

    def field(name: str) -> str | None:
        match = re.search(r"^%s:[ \t]*(\S.*)$" % name, output, re.MULTILINE)
        return match[1].strip() if match and not code else None

    fields = {name: field(name) for name in ("version", "license", "signer")}
    return {"kernel": kernel, "found": not code, **fields}


def newest_kernel(m: Measurement) -> str:
    """The newest kernel that is installed: the one that the next boot takes by default."""
    images = [name.partition("-")[2] for name in m.names("/boot") if re.fullmatch(r"vmlinuz-\d.*", name)]
    kernels = images or [name for name in m.names("/lib/modules") if name[:1].isdigit()]
    if not kernels:
        raise Unreadable("no vmlinuz-* in /boot, no folder in /lib/modules")
    return max(kernels, key=lambda name: [(part.isdigit(), int(part) if part.isdigit() else 0, part)
                                          for part in re.findall(r"\d+|[a-z]+", name)])  # fmt: skip


def read_flavour(m: Measurement) -> str:
    """Which of NVIDIA's two kernel modules is loaded: "open" or "proprietary"."""
    first = m.text("/proc/driver/nvidia/version").partition("\n")[0]
    if "NVRM version" not in first:
        raise Unreadable("seen " + ascii(first[:60]))
    return "open" if "Open Kernel Module" in first else "proprietary"


def read_secure_boot(m: Measurement) -> bool:
    """Whether Secure Boot is on: an EFI variable of one byte behind four of attributes."""
    with open(m.place(SECURE_BOOT), "rb") as file:
        data = file.read(8)
    if len(data) != 5:
        raise Unreadable("seen %d bytes, not 5" % len(data))
    return data[4] == 1


def library_version(m: Measurement) -> str:
    """The driver version of libnvidia-ml.so.1, by its file's name: it also tells when NVML refuses to start."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64"):
        name = os.path.basename(os.path.realpath(m.place(folder + "/libnvidia-ml.so.1")))
        match = re.fullmatch(r"libnvidia-ml\.so\.(\d+\.\d[\d.]*)", name)
        if match:
            return match[1]
    raise Unreadable("no libnvidia-ml.so.1 in the usual folders")


def read_pci(m: Measurement) -> list[dict[str, Any]]:
    """NVIDIA's display devices, by sysfs: whatever driver they have. `driver` null: none."""
    folder = "/sys/bus/pci/devices"
    if not os.path.isdir(m.place(folder)):
        raise Unreadable("no such folder")
    found = []
    for address in m.names(folder):
        base = "%s/%s" % (folder, address)
        vendor, kind = (m.get("%s/%s" % (base, name), m.text, "%s/%s" % (base, name)) for name in ("vendor", "class"))
        if vendor == NVIDIA and (kind or "").startswith(DISPLAY):
            link = m.place(base + "/driver")
            driver = os.path.basename(os.readlink(link)) if os.path.islink(link) else None
            found.append({"address": address, "device": m.get(base + "/device", m.text, base + "/device"),
                          "driver": driver})  # fmt: skip
    return found


def load_module(pci: Iterable[dict[str, Any]]) -> str | None:
    """What modprobe says; None when there is no need to call it. NVML would load the module too, but keeps the text."""
    if not any(device["driver"] is None for device in pci):
        return None
    code, output = run(["modprobe", "nvidia"], LONG_S)
    return " ".join(output.split())[:1000] or ("loaded" if not code else "modprobe exited %d" % code)


def read_driver(m: Measurement) -> dict[str, Any]:
    """Versions of every part of the driver. The two of NVML are filled in by `read_nvml`."""
    pci = m.get("/sys/bus/pci/devices", read_pci, m)
    running = m.get("kernel", m.text, "/proc/sys/kernel/osrelease")
    newest = m.get("newest_kernel", newest_kernel, m)
    record = {
        "pci": pci,
        "module_load": m.get("module_load", load_module, pci or ()),
        "kernel": running,
        "newest_kernel": newest,
        "loaded": m.get("/sys/module/nvidia/version", m.text, "/sys/module/nvidia/version"),
        "flavour": m.get("/proc/driver/nvidia/version", read_flavour, m),
        "library": m.get("library", library_version, m),
        "secure_boot": m.get(SECURE_BOOT, read_secure_boot, m),
        "module": m.get("module", read_module, running) if running else None,
    }
    record["next_module"] = None
    if newest:
        same = newest == running
        record["next_module"] = record["module"] if same else m.get("next_module", read_module, newest)
    return record


# --- the kernel log


def kernel_lines(m: Measurement) -> tuple[str, list[str]]:
    """Where from, and the messages since this boot, oldest first, without their times."""
    try:
        code, output = run(["journalctl", "-k", "-b", "-q", "-o", "cat", "--no-pager"], 60)
        if not code and output.strip():
            return "journal", output.splitlines()
    except Unreadable:
        pass
    text = b"\n".join(kmsg_records(m.place("/dev/kmsg"))).decode("utf-8", "replace")
    return "/dev/kmsg", [re.sub(r"^\d+,\d+,\d+,[^;]*;", "", line) for line in text.splitlines() if line[:1] != " "]


def kmsg_records(path: str) -> Iterable[bytes]:
    """The kernel's ring buffer, record by record, without waiting for the next message."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                record = os.read(handle, 1 << 16)
            except BrokenPipeError:  # Overwritten while we read: the next read continues behind the gap.
                continue
            except BlockingIOError:
                return
            if not record:
                return
            yield record
    finally:
        os.close(handle)


def read_log(m: Measurement) -> dict[str, Any]:
    """What the kernel said about the card. `whole`: whether the log reaches back to the boot.

    `xids`: each code and card once, with how often and the last line. `lines`: other lines, each once; a broken card
    repeats itself, and the first lines tell the cause, so the start and the end are kept.
    """
    source, lines = kernel_lines(m)
    xids: dict[tuple[str, int], dict[str, Any]] = {}
    others: dict[str, None] = {}
    for line in lines:
        found = XID.search(line)
        if found:
            key = (found[1], int(found[2]))
            count = xids.get(key, {"count": 0})["count"] + 1
            xids[key] = {"bus": key[0], "code": key[1], "count": count, "line": line[:300]}
        elif ABOUT_THE_CARD.search(line):
            others[line[:300]] = None
    kept = list(others)
    return {
        "source": source,
        "whole": any("Linux version " in line for line in lines[:5]),
        "xids": list(xids.values()),
        "lines": kept if len(kept) <= 2 * LINES else kept[:LINES] + kept[-LINES:],
    }


# --- the cards


def load_pynvml(folder: str | None) -> Any:
    """pynvml from a folder, from beside this file, or as installed. sys.path is left alone: -I has its reasons."""
    for path in (os.path.join(place, "pynvml.py") for place in (folder, HERE) if place):
        if os.path.isfile(path):
            spec = importlib.util.spec_from_file_location("pynvml", path)
            if spec and spec.loader:
                module = importlib.util.module_from_spec(spec)
                sys.modules["pynvml"] = module
                spec.loader.exec_module(module)
                return module
    return importlib.import_module("pynvml")


def text(value: Any) -> str:
    """NVML's strings are bytes in some versions of pynvml."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def bus_id(value: Any) -> str:
    """NVML's bus id (8 digits of domain, upper case) as sysfs writes it (4 digits, lower case)."""
    match = re.fullmatch(r"([0-9a-f]+):([0-9a-f:.]+)", text(value.busId).lower())
    if not match:
        raise Unreadable("seen bus id " + ascii(text(value.busId)))
    return "%04x:%s" % (int(match[1], 16), match[2])


def attribute(name: str) -> Callable[[Any], int]:
    """One field of a structure that a getter returns."""
    return lambda value: int(getattr(value, name))


GETTERS: tuple[tuple[str, str, tuple[Any, ...], Callable[[Any], Any]], ...] = (
    ("name", "nvmlDeviceGetName", (), text),
    ("uuid", "nvmlDeviceGetUUID", (), text),
    ("bus", "nvmlDeviceGetPciInfo", (), bus_id),
    ("capability", "nvmlDeviceGetCudaComputeCapability", (), list),
    ("memory_bytes", "nvmlDeviceGetMemoryInfo", (), attribute("total")),
    ("bar1_bytes", "nvmlDeviceGetBAR1MemoryInfo", (), attribute("bar1Total")),
    ("max_link_width", "nvmlDeviceGetMaxPcieLinkWidth", (), int),
    ("max_link_generation", "nvmlDeviceGetMaxPcieLinkGeneration", (), int),
    ("card_link_generation", "nvmlDeviceGetGpuMaxPcieLinkGeneration", (), int),
    ("persistence", "nvmlDeviceGetPersistenceMode", (), bool),
    ("power_limit_mw", "nvmlDeviceGetEnforcedPowerLimit", (), int),
    ("power_default_mw", "nvmlDeviceGetPowerManagementDefaultLimit", (), int),
    ("max_memory_mhz", "nvmlDeviceGetMaxClockInfo", (2,), int),
    ("ecc", "nvmlDeviceGetEccMode", (), lambda modes: bool(modes[0])),
    ("mig", "nvmlDeviceGetMigMode", (), lambda modes: bool(modes[0])),
    ("display", "nvmlDeviceGetDisplayActive", (), bool),
    ("gsp_firmware", "nvmlDeviceGetGspFirmwareVersion", (), text),
    ("vbios", "nvmlDeviceGetVbiosVersion", (), text),
    ("link_replays", "nvmlDeviceGetPcieReplayCounter", (), int),
)
"""Field, NVML's getter, its further arguments (2 is NVML_CLOCK_MEM), what becomes of its answer."""

MOVING: tuple[tuple[str, str, tuple[Any, ...], Callable[[Any], Any]], ...] = (
    ("link_width", "nvmlDeviceGetCurrPcieLinkWidth", (), int),
    ("link_generation", "nvmlDeviceGetCurrPcieLinkGeneration", (), int),
    ("memory_mhz", "nvmlDeviceGetClockInfo", (2,), int),
    ("sm_mhz", "nvmlDeviceGetClockInfo", (1,), int),
    ("power_mw", "nvmlDeviceGetPowerUsage", (), int),
    ("celsius", "nvmlDeviceGetTemperature", (0,), int),
    ("event_reasons", "nvmlDeviceGetCurrentClocksEventReasons", (), int),
)
"""What differs between an idle and a busy card. 2 and 1: NVML_CLOCK_MEM, _SM; 0: NVML_TEMPERATURE_GPU."""


def ask(m: Measurement, nvml: Any, handle: Any, key: str, getters: Iterable[Any]) -> dict[str, Any]:
    """The answers of several getters."""

    def answer(function: str, arguments: tuple[Any, ...], convert: Callable[[Any], Any]) -> Any:
        return convert(getattr(nvml, function)(handle, *arguments))

    return {name: m.get("%s.%s" % (key, name), answer, *getter) for name, *getter in getters}


def sample(m: Measurement, nvml: Any, handle: Any, key: str, bus: str | None) -> dict[str, Any]:
    """One look at what moves. sysfs tells the link too, if NVML does not."""
    seen = ask(m, nvml, handle, key, MOVING)
    folder = "/sys/bus/pci/devices/%s/" % bus
    if bus and seen["link_width"] is None:
        seen["link_width"] = m.get(folder + "current_link_width", m.number, folder + "current_link_width")
    if bus and seen["link_generation"] is None:
        speed = m.get(folder + "current_link_speed", m.text, folder + "current_link_speed")
        seen["link_generation"] = GENERATIONS.get((speed or "").partition(" ")[0])
    return seen


def merge(one: dict[str, Any] | None, other: dict[str, Any]) -> dict[str, Any]:
    """Two samples of a busy card: the larger of each, and all clock event reasons."""
    merged = dict(other)
    for name, value in (one or {}).items():
        if value is not None and other[name] is not None:
            merged[name] = value | other[name] if name == "event_reasons" else max(value, other[name])
        elif value is not None:
            merged[name] = value
    return merged


def read_processes(m: Measurement, nvml: Any, handle: Any) -> list[dict[str, Any]]:
    """Processes that hold memory of the card: name and systemd unit by /proc."""
    found: dict[int, dict[str, Any]] = {}
    for kind in ("Compute", "Graphics"):
        for process in getattr(nvml, "nvmlDeviceGet%sRunningProcesses" % kind)(handle):
            pid = int(process.pid)
            used = process.usedGpuMemory
            found[pid] = {"pid": pid, "name": proc(m, pid, "comm"), "unit": unit_of(proc(m, pid, "cgroup")),
                          "memory_bytes": None if used is None else int(used)}  # fmt: skip
    return list(found.values())


def proc(m: Measurement, pid: int, name: str) -> str | None:
    """A file of a process; None when it has ended, or belongs to another container."""
    try:
        return m.text("/proc/%d/%s" % (pid, name))
    except OSError:
        return None


def unit_of(cgroup: str | None) -> str | None:
    """The service or scope of a /proc/PID/cgroup."""
    units = re.findall(r"[^/\n]+\.(?:service|scope)", cgroup or "")
    return units[-1] if units else None


def read_node(m: Measurement, nvml: Any, handle: Any, bus: str | None) -> int:
    """The NUMA node: by sysfs, which knows it on every platform; -1 there: by NVML's memory affinity."""
    path = "/sys/bus/pci/devices/%s/numa_node" % bus
    node = m.number(path) if bus else -1
    if node >= 0:
        return node
    nodes = m.text("/sys/devices/system/node/online")
    if nodes == "0":
        return 0
    words = nvml.nvmlDeviceGetMemoryAffinity(handle, 1, 0)  # 0: NVML_AFFINITY_SCOPE_NODE
    mask = int(words[0])
    if mask <= 0 or mask & (mask - 1):
        raise Unreadable("-1 in sysfs, and NVML's memory affinity is %#x with nodes %s online" % (mask, nodes))
    return mask.bit_length() - 1


def read_card(m: Measurement, nvml: Any, handle: Any, index: int) -> dict[str, Any]:
    """One card, idle."""
    key = "cards.%d" % index
    card = {"index": index, **ask(m, nvml, handle, key, GETTERS)}
    card["numa_node"] = m.get(key + ".numa_node", read_node, m, nvml, handle, card["bus"])
    card["processes"] = m.get(key + ".processes", read_processes, m, nvml, handle)
    card["idle"] = sample(m, nvml, handle, key + ".idle", card["bus"])
    card["busy"] = card["run"] = None
    return card


def read_cards(m: Measurement, nvml: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Every card that NVML shows, with its handle."""
    count = nvml.nvmlDeviceGetCount()
    if not count:
        m.unreadable["cards"] = "No devices were found"  # nvidia-smi's words for it
    cards = []
    for index in range(count):
        handle = m.get("cards.%d" % index, nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is not None:
            cards.append((handle, read_card(m, nvml, handle, index)))
    return cards


# --- the toolkit


def read_nvcc(path: str) -> dict[str, Any]:
    """One nvcc: the toolkit's release ("12.9") and the architectures that it knows ("compute_120")."""
    record: dict[str, Any] = {"path": path, "release": None, "archs": None, "text": None}
    for name, option in (("release", "--version"), ("archs", "--list-gpu-arch")):
        try:
            code, output = run([path, option], SHORT_S)
        except Unreadable as error:
            code, output = 1, str(error)
        release = re.search(r"\brelease (\d+\.\d+)", output)
        if code or (name == "release" and not release):
            record["text"] = " ".join(output.split())[:300]
        else:
            record[name] = release[1] if release and name == "release" else re.findall(r"compute_\w+", output)
    return record


def assignments(m: Measurement, path: str) -> dict[str, str]:
    """KEY=VALUE lines of an environment file."""
    found = {}
    try:
        lines = m.text(path).splitlines()
    except OSError:
        return {}
    for line in lines:
        match = re.fullmatch(r"(?:export\s+)?(\w+)=(.*)", line.strip())
        if match:
            found[match[1]] = match[2].strip("\"'")
    return found


def read_login(m: Measurement) -> dict[str, str]:
    """PATH and CUDA_HOME as root's login shell has them: /etc/environment (PAM reads it), then the profiles."""
    known = assignments(m, "/etc/environment")
    env = {"HOME": "/root", "USER": "root", "PATH": SYSTEM_PATH, **known}
    script = 'printf "\\n@%s=%s" PATH "$PATH" CUDA_HOME "$CUDA_HOME"'
    _, output = run(["sh", "-lc", script], SHORT_S, env)
    found = dict(re.findall(r"^@(PATH|CUDA_HOME)=(.*)$", output, re.MULTILINE))
    if set(found) != {"PATH", "CUDA_HOME"}:
        raise Unreadable("a login shell says " + ascii(output[-80:]))
    return found


def setters(m: Measurement) -> list[str]:
    """Files that name CUDA_HOME."""
    places = ["/etc/environment", "/etc/profile", *("/etc/profile.d/" + name for name in m.names("/etc/profile.d"))]
    return [path for path in places if "CUDA_HOME" in (m.get(path, m.text, path) or "")]


def read_toolkit(m: Measurement, folder: str) -> dict[str, Any]:
    """The wanted toolkit, and what a login shell would use instead. `on_path`: every nvcc there, first one first."""
    login = m.get("login", read_login, m)
    wanted = os.path.join(folder, "bin", "nvcc")
    there = os.access(wanted, os.X_OK)
    if not there:
        m.unreadable[wanted] = "no such program"
    on_path = None
    if login is not None:
        places = [os.path.join(place, "nvcc") for place in login["PATH"].split(":") if place]
        on_path = [read_nvcc(path) for path in dict.fromkeys(places) if os.access(path, os.X_OK)]
    return {
        "folder": folder,
        "nvcc": read_nvcc(wanted) if there else None,
        "on_path": on_path,
        "cuda_home": None if login is None else login["CUDA_HOME"],
        "cuda_home_from": setters(m) if login is None or login["CUDA_HOME"] else [],
    }


# --- the kernel


def build(nvcc: str, arch: str, folder: str) -> dict[str, Any]:
    """Compile gpu.cu for one real architecture. `text` is what the compiler says."""
    program = os.path.join(folder, "gpu")
    target = "arch=compute_%s,code=sm_%s" % (arch, arch)
    command = [nvcc, "-O2", "-gencode", target, "-o", program, os.path.join(HERE, "gpu.cu")]
    code, output = run(command, LONG_S)
    built = not code and os.path.exists(program)
    return {"arch": arch, "command": " ".join(map(shlex.quote, command)), "built": built, "text": tail(output)}


def tail(output: str) -> str:
    """The first and the last kilobyte: a compiler's first error tells the cause."""
    output = output.strip()
    return output if len(output) <= 2000 else output[:1000] + "\n...\n" + output[-1000:]


def keep_busy(m: Measurement, nvml: Any, handle: Any, card: dict[str, Any], program: str) -> dict[str, Any]:
    """Run the program on one card and look at the card meanwhile, once it computes."""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": card["uuid"] or str(card["index"]),
           "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # fmt: skip
    began, busy = time.monotonic(), None
    process = start([program, str(BUSY_S)], env)
    while process.poll() is None and time.monotonic() - began < LONG_S:
        busy = merge(busy, sample(m, nvml, handle, "cards.%d.busy" % card["index"], card["bus"]))
        time.sleep(SAMPLE_S)
    if process.poll() is None:
        stop(process)
        raise Unreadable("it computed for more than %d s" % LONG_S)
    output = process.communicate()[0].decode("utf-8", "replace")
    card["busy"] = busy
    line = next((line for line in reversed(output.splitlines()) if line.startswith("{")), None)
    result = json.loads(line) if line else None
    return {"exit": process.returncode, "result": result, "text": None if result else tail(output)}


def put_load(m: Measurement, nvml: Any, cards: Iterable[tuple[Any, dict[str, Any]]], nvcc: Any, arch: str) -> Any:
    """Build the program and run it on every card; what the build said."""
    if nvcc is None:
        raise Unreadable("no nvcc to build it with")
    with tempfile.TemporaryDirectory(prefix="ktfleet-gpu-") as folder:
        built = build(nvcc["path"], arch, folder)
        for handle, card in cards if built["built"] else ():
            key = "cards.%d.run" % card["index"]
            card["run"] = m.get(key, keep_busy, m, nvml, handle, card, os.path.join(folder, "gpu"))
    return built


# --- all of it


def read_nvml(m: Measurement, folder: str | None) -> tuple[Any, dict[str, Any]]:
    """pynvml, initialised, or None and the reason; and the versions that NVML tells."""
    versions: dict[str, Any] = {"nvml": None, "nvml_library": None, "cuda": None, "nvml_error": None}
    nvml = m.get("pynvml", load_pynvml, folder)
    if nvml is None:
        return None, versions
    try:
        nvml.nvmlInit()
    except Exception as error:
        versions["nvml_error"] = type(error).__name__.replace("NVMLError_", "")
        m.unreadable["nvml"] = why(error)
        return None, versions
    versions["nvml"] = m.get("driver.nvml", lambda: text(nvml.nvmlSystemGetDriverVersion()))
    versions["nvml_library"] = m.get("driver.nvml_library", lambda: text(nvml.nvmlSystemGetNVMLVersion()))
    versions["cuda"] = m.get("driver.cuda", lambda: int(nvml.nvmlSystemGetCudaDriverVersion()))
    return nvml, versions


def collect(
    root: str = "/",
    toolkit: str = "/usr/local/cuda",
    arch: str = "120a",
    load: bool = False,
    pynvml: str | None = None,
) -> dict[str, Any]:
    """The measurement, in plain JSON types."""
    m = Measurement(root)
    driver = read_driver(m)
    nvml, versions = read_nvml(m, pynvml)
    cards = m.get("cards", read_cards, m, nvml) if nvml is not None else None
    tools = m.get("toolkit", read_toolkit, m, toolkit)
    built = None
    if load:
        built = m.get("kernel_build", put_load, m, nvml, cards or (), tools and tools["nvcc"], arch)
    record = {
        "schema": SCHEMA,
        "driver": {**driver, **versions},
        "cards": None if cards is None else [card for _, card in cards],
        # After the load: what it provoked is in there too.
        "kernel_log": m.get("kernel_log", read_log, m),
        "toolkit": tools,
        "kernel_build": built,
        "loaded": load,
        "unreadable": m.unreadable,
    }
    # Names that are not UTF-8 arrive as lone surrogates, which JSON readers refuse.
    plain: dict[str, Any] = json.loads(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace"))
    return plain


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line of JSON; 0, or 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="gpu", description="Print this host's GPU, driver and toolkit as JSON.")
    parser.add_argument("--root", default="/", help="folder with sys/, proc/, etc/ instead of this machine's")
    parser.add_argument("--toolkit", default="/usr/local/cuda", metavar="DIR", help="folder of the CUDA toolkit")
    parser.add_argument("--arch", default="120a", help="architecture that the kernel is built for")
    parser.add_argument("--load", action="store_true", help="build and run the kernel, and look meanwhile")
    parser.add_argument("--pynvml", metavar="DIR", help="folder with pynvml.py; default: beside this file, installed")
    arguments = parser.parse_args(argv)
    sys.dont_write_bytecode = True  # Nothing is left beside pynvml.py.
    try:
        record = collect(**vars(arguments))
    except Exception as error:  # One line of JSON whatever happens.
        record = {"schema": SCHEMA, "unreadable": {"measurement": "failed: %s" % ascii(error)}}
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
