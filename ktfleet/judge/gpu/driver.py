"""Verdicts on the driver: which, whether its parts fit together, and whether the next boot still has it."""

from __future__ import annotations

from ktfleet.config import Gpu
from ktfleet.judge.gpu.gaps import unknown
from ktfleet.measure.gpu_record import Driver, Module, Record
from ktfleet.translate import translate
from ktfleet.verdict import Verdict

OPEN_ONLY = (10, 0)
"""From this capability on (Blackwell), NVIDIA's proprietary module does not drive the card."""

OPEN_LICENSE = "Dual MIT/GPL"
"""modinfo's license of the open module; the proprietary one says NVIDIA."""

_SECURE_BOOT_PATH = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def judge(wanted: Gpu, record: Record) -> tuple[Verdict, ...]:
    """All of it."""
    return (
        _version(wanted, record),
        _versions(record),
        _flavour(wanted, record),
        _bound(record),
        _next_boot(record),
        _secure_boot(record),
    )


def user_space(driver: Driver) -> str | None:
    """The version of the libraries. NVML puts CUDA's major version before its own ("13.580.159.04")."""
    return driver.library or (driver.nvml_library or "").partition(".")[2] or None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _version(wanted: Gpu, record: Record) -> Verdict:
    key, text = "gpu driver", f"branch {wanted.driver_branch}, at least {wanted.minimum_driver}"
    why = "CUDA 13's runtime wants that much, and a branch is what updates stay within"
    seen = record.driver.nvml or record.driver.loaded
    if seen is None:
        return unknown(key, text, record.why("driver.nvml", "nvml", "pynvml", "/sys/module/nvidia/version"))
    if _numbers(seen) < _numbers(wanted.minimum_driver) or seen.partition(".")[0] != wanted.driver_branch:
        return Verdict(key, "fail", seen, text, why, "install the wanted branch, or correct gpu in the inventory")
    return Verdict(key, "pass", seen, text, why)


def _versions(record: Record) -> Verdict:
    """What runs, what is on disk for this kernel, and the libraries: one version."""
    key, wanted, driver = "gpu driver versions", "one version everywhere", record.driver
    on_disk = _on_disk(driver.module)
    parts = {"loaded": driver.loaded, "on disk": on_disk, "libraries": user_space(driver), "NVML": driver.nvml}
    known = {name: version for name, version in parts.items() if version}
    why = "kernel module and libraries only talk to each other in the same version"
    if len(set(known.values())) > 1:
        seen = ", ".join(f"{name} {version}" for name, version in known.items())
        do = "reboot; install nothing anew"
        if not driver.loaded or on_disk == "none":
            do = "install the module for this kernel (its headers first), then reboot"
        return Verdict(key, "fail", seen, wanted, why, do)
    gaps = [name for name, version in parts.items() if not version]
    if gaps:
        places = {
            "loaded": ("/sys/module/nvidia/version",),
            "on disk": ("module", "kernel"),
            "libraries": ("library",),
            "NVML": ("driver.nvml", "nvml", "pynvml"),
        }
        return unknown(key, wanted, "; ".join(f"{name}: {record.why(*places[name])}" for name in gaps))
    return Verdict(key, "pass", next(iter(known.values())), wanted, why)


def _on_disk(module: Module | None) -> str | None:
    """The version of a module; "none" is a finding, None a gap."""
    if module is None:
        return None
    return module.version if module.found else "none"


def _flavour(wanted: Gpu, record: Record) -> Verdict:
    key, driver = "gpu module licence", record.driver
    must = wanted.capability >= OPEN_ONLY
    text = "the open kernel modules" if must else "either flavour"
    why = "since Blackwell the proprietary module shows no device" if must else "older cards run with both"
    known = {"loaded": driver.flavour, "on disk": _license(driver.module)}
    seen = {name: flavour for name, flavour in known.items() if flavour}
    if not seen:
        return unknown(key, text, record.why("/proc/driver/nvidia/version", "module"))
    shown = ", ".join(f"{name} {flavour}" for name, flavour in seen.items())
    if must and set(seen.values()) != {"open"}:
        do = "install the open flavour (packages named -open), then reboot"
        return Verdict(key, "fail", shown, text, why, do)
    return Verdict(key, "pass", shown, text, why)


def _license(module: Module | None) -> str | None:
    if module is None or module.license is None:
        return None
    return "open" if module.license == OPEN_LICENSE else "proprietary"


def _bound(record: Record) -> Verdict:
    key, wanted, why = "gpu kernel driver", "nvidia", "a card belongs to one kernel driver"
    devices = record.driver.pci
    if devices is None:
        return unknown(key, wanted, record.why("/sys/bus/pci/devices"))
    if not devices:
        do = "look at power cables and seating; BIOS: Above 4G decoding"
        return Verdict(key, "fail", "no NVIDIA card on the PCI bus", wanted, why, do)
    others = [device for device in devices if device.driver != "nvidia"]
    if others:
        seen = ", ".join(f"{device.driver or 'no driver'} at {device.address}" for device in others)
        return Verdict(key, "fail", seen, wanted, *_unbind(record, {device.driver for device in others}))
    return Verdict(key, "pass", "nvidia", wanted, why)


def _unbind(record: Record, drivers: set[str | None]) -> tuple[str, str]:
    """Why another driver, or none, has the card, and what helps."""
    if drivers & {"nouveau", "nova_core", "NovaCore"}:
        why = "the kernel's own driver took the card at boot, and NVIDIA's cannot have it"
        return why, "blacklist nouveau and nova_core, update-initramfs -u -k all, reboot"
    if drivers != {None}:
        return "a card belongs to one kernel driver", "find who binds it (a passthrough for virtual machines?)"
    known = translate(record.driver.module_load)
    if known:
        return known.what, known.do
    said = f"modprobe says: {record.driver.module_load}" if record.driver.module_load else "nothing has loaded it"
    return said, "install the driver for this kernel; see `modprobe nvidia`"


def _next_boot(record: Record) -> Verdict:
    """The newest kernel is what boots next: without a module there the card is gone after any reboot."""
    key, module = "gpu module for the next boot", record.driver.next_module
    libraries, why = user_space(record.driver), "an update of the kernel alone loses the card at the next reboot"
    wanted = f"version {libraries}" if libraries else "the version of the libraries"
    if module is None:
        return unknown(key, wanted, record.why("next_module", "newest_kernel", "module", "kernel"))
    do = "before any reboot: install the kernel's headers (by metapackage) or its signed modules, see dkms status"
    if not module.found:
        return Verdict(key, "fail", f"none for {module.kernel}", wanted, why, do)
    if module.version is None or libraries is None:
        return unknown(key, wanted, record.why("library") if module.version else "modinfo tells no version")
    if module.version != libraries:
        return Verdict(key, "fail", f"{module.version} for {module.kernel}", wanted, why, do)
    return Verdict(key, "pass", f"{module.version} for {module.kernel}", wanted, why)


def _secure_boot(record: Record) -> Verdict:
    """On is fine with a module whose key the kernel knows."""
    key, wanted, driver = "gpu Secure Boot", "off, or a module with a known key", record.driver
    why = "with Secure Boot the kernel loads no module that is signed with an unknown key"
    if driver.secure_boot is None:
        reason = record.why(_SECURE_BOOT_PATH)
        if reason == "no such file or directory":
            return Verdict(
                key, "skipped", "nothing", wanted, "there are no EFI variables: the machine was not booted by UEFI"
            )
        return unknown(key, wanted, reason)
    if not driver.secure_boot:
        return Verdict(key, "pass", "off", wanted, why)
    if driver.loaded:
        return Verdict(key, "pass", "on, and the module is loaded", wanted, why)
    said = "\n".join((driver.module_load or "", *(record.kernel_log.lines if record.kernel_log else ())))
    known = translate(said)
    do = known.do if known else "use the distribution's signed modules, or enrol the key at the console"
    return Verdict(key, "fail", "on, and the module is not loaded", wanted, why, do)
