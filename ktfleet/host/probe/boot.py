"""The system: distribution, kernel, boot loader, Secure Boot, first boot, wanted reboot."""

from __future__ import annotations

import json
import re
import shlex
from functools import partial

from ktfleet.host.probe.reader import Reader
from ktfleet.host.probe.values import ReadError, parse_line, seen

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from typing import Any

OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
GRUB_CFG = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
GRUB = (*GRUB_CFG, "/etc/default/grub")
SYSTEMD_BOOT = (
    "/boot/loader/loader.conf",
    "/boot/efi/loader/loader.conf",
    "/efi/loader/loader.conf",
    "/etc/kernel/cmdline",
)
EFI = "/sys/firmware/efi"
SECURE_BOOT = EFI + "/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MOK_LIST = (EFI + "/mok-variables/MokListRT", EFI + "/efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23")
DKMS_KEY = "/var/lib/dkms/mok.pub"
DROP_INS = ("/etc/default/grub", "/etc/default/grub.d/*.cfg", "/etc/kernel/cmdline")
CLOUD_INIT = "/run/cloud-init"
REBOOT_REQUIRED = "/run/reboot-required"


def parse_os_release(text: str, name: str) -> str:
    """The value of one shell assignment of os-release(5)."""
    match = re.search(r"^%s=(.*)$" % name, text, re.MULTILINE)
    if not match:
        raise ReadError("no %s" % name)
    try:
        return " ".join(shlex.split(match[1]))
    except ValueError:
        raise ReadError("broken quotes: " + seen(match[1])) from None


def parse_grub_cfg(text: str) -> str:
    """The kernel's arguments of the first `linux` command, as GRUB would hand them over.

    Words that are only a GRUB variable ($vt_handoff) are dropped: their value is set at boot.
    """
    words = _grub_words(text)[1:]
    kept = [word for word in words if not re.fullmatch(r'"?\$(?:\w+|\{\w+\})"?', word)]
    try:
        return " ".join(_grub_word(word) for word in kept)
    except ValueError:
        raise ReadError("broken quotes: " + seen(" ".join(kept))) from None


def parse_grub_kernel(text: str) -> str:
    """The release of the kernel that the first `linux` command loads (/boot/vmlinuz-RELEASE)."""
    path = _grub_words(text)[0]
    match = re.search(r"/vmlinu[xz]-([\w.+~-]+)$", path)
    if not match:
        raise ReadError("no vmlinuz-RELEASE: " + seen(path))
    return match[1]


def _grub_words(text: str) -> list[str]:
    match = re.search(r"^[ \t]*linux(?:efi|16)?[ \t]+(\S.*)$", text, re.MULTILINE)
    if not match:
        raise ReadError("no linux line")
    return re.findall(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+|\S""", match[1])


def _grub_word(word: str) -> str:
    # grub_create_loader_cmdline (grub-core/lib/cmdline.c) escapes and quotes what it passes to Linux.
    plain = re.sub(r"([\\'\"])", r"\\\1", "".join(shlex.split(word)))
    return '"%s"' % plain if " " in plain else plain


def read_os(reader: Reader) -> dict[str, Any]:
    """os-release(5)."""
    text = reader.first(OS_RELEASE, str)
    names = ("ID", "VERSION_ID", "PRETTY_NAME")
    distribution, version, pretty = reader.each("os", text, parse_os_release, names)
    return {"id": distribution, "version_id": version, "pretty_name": pretty}


def read_kernel(reader: Reader) -> dict[str, Any]:
    """The running kernel."""
    return {
        "release": reader.value("/proc/sys/kernel/osrelease", parse_line),
        "boot_id": reader.value("/proc/sys/kernel/random/boot_id", parse_line),
        "cmdline": reader.value("/proc/cmdline", str.strip),
    }


def read_loader(reader: Reader, cmdline: str | None) -> str | None:
    """Which boot loader's configuration counts: "grub" or "systemd-boot"."""
    grub = any(reader.exists(path) for path in GRUB)
    systemd_boot = any(reader.exists(path) for path in SYSTEMD_BOOT)
    if grub and systemd_boot:
        # Files of both outlive a change of the loader. The running command line tells: GRUB's `linux`
        # always puts BOOT_IMAGE= in front, systemd-boot never does.
        return "systemd-boot" if cmdline is not None and "BOOT_IMAGE=" not in cmdline else "grub"
    if not grub and not systemd_boot:
        reader.note("boot.loader", "no configuration of grub or systemd-boot")
        return None
    return "grub" if grub else "systemd-boot"


def read_boot(reader: Reader, cmdline: str | None) -> dict[str, Any]:
    """The loader and what can set the kernel's command line."""
    loader = read_loader(reader, cmdline)
    drop_ins: dict[str, str] = {}
    for pattern in DROP_INS:
        drop_ins.update(reader.matching(pattern, reader.sha256))
    if loader != "grub":
        reader.note("boot.next_cmdline", "only read from grub.cfg, and the loader is not grub")
        reader.note("boot.next_kernel", "only read from grub.cfg, and the loader is not grub")
    efi = read_presence(reader, EFI)
    secure_boot = efi and read_secure_boot(reader)
    return {
        "loader": loader,
        "next_cmdline": reader.first(GRUB_CFG, parse_grub_cfg) if loader == "grub" else None,
        "next_kernel": reader.first(GRUB_CFG, parse_grub_kernel) if loader == "grub" else None,
        "efi": efi,
        "secure_boot": secure_boot,
        "dkms_key_enrolled": read_dkms_key(reader) if secure_boot else None,
        "drop_ins": drop_ins,
    }


def read_presence(reader: Reader, path: str) -> bool | None:
    """Whether the path exists; None with a reason where that cannot be told."""
    return reader.exists(path) or (None if path in reader.reasons else False)


def read_secure_boot(reader: Reader) -> bool | None:
    """Whether the firmware only starts what is signed. A firmware without the variable cannot."""

    def read() -> bool:
        data = reader.data(SECURE_BOOT)
        if len(data) != 5:  # Four bytes of attributes, then the value.
            raise ReadError("not 5 bytes")
        return data[4] == 1

    if reader.names(EFI + "/efivars") and not reader.exists(SECURE_BOOT) and SECURE_BOOT not in reader.reasons:
        return False
    return reader.get(SECURE_BOOT, read)


def read_dkms_key(reader: Reader) -> bool | None:
    """Whether the machine owner's list holds DKMS's certificate. Without either file: it does not."""
    key = reader.find(DKMS_KEY, partial(reader.data, DKMS_KEY))
    lists = [reader.find(path, partial(reader.data, path)) for path in MOK_LIST]
    if key and any(key in data for data in lists if data):
        return True
    return None if {DKMS_KEY, *MOK_LIST} & set(reader.reasons) else False


def parse_cloud_result(text: str) -> str:
    """cloud-init's result.json."""
    try:
        errors = json.loads(text)["v1"]["errors"]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise ReadError("not a result of cloud-init: " + seen(text)) from None
    return "error" if errors else "done"


def read_cloud_init(reader: Reader) -> str | None:
    """How far cloud-init is in this boot."""
    names = reader.names(CLOUD_INIT)
    if CLOUD_INIT in reader.reasons:
        return None
    if "result.json" in names:
        return reader.value(CLOUD_INIT + "/result.json", parse_cloud_result)
    return "running" if {"status.json", "enabled"} & set(names) else "absent"


def read_reboot_required(reader: Reader) -> list[str] | None:
    """The packages that ask for a reboot."""
    if not reader.exists(REBOOT_REQUIRED):
        return None
    packages = reader.optional(REBOOT_REQUIRED + ".pkgs", str.split)
    return sorted(set(packages or ())) or ["unknown"]
