"""The packages that Debian 12 and NVIDIA's repository for it have for a card, as stubs.

Names, versions and what depends on what are the real ones. DKMS builds a module for each kernel that has headers,
as the real one does, only that it is no driver (see build-module).
"""

from __future__ import annotations

from pathlib import Path

from tests.lab.packages.repository import Stub

DRIVER, NEWER = "580.95.05", "595.10.01"
NEXT_KERNEL = "6.1.0-99-amd64"
DKMS = """#!/bin/sh
# status, or autoinstall [-k KERNEL]: for every kernel that has headers.
modules=/usr/src/nvidia-current/version
case $1 in
autoinstall)
    for folder in ${3:+/lib/modules/$3} ${3:-/lib/modules/*}; do
        kernel=${folder##*/}
        [ -e $modules ] && [ -d "/usr/src/linux-headers-$kernel" ] && [ -d "/lib/modules/$kernel/kernel" ] || continue
        /usr/lib/dkms/build-module "$kernel" "$(cat $modules)"
    done ;;
status)
    for file in /lib/modules/*/updates/dkms/nvidia.ko; do
        [ -e "$file" ] || continue
        kernel=${file#/lib/modules/}
        echo "nvidia/$(cat $modules), ${kernel%%/*}, x86_64: installed"
    done ;;
esac
"""
PERSISTENCED = "[Service]\nExecStart=/usr/bin/nvidia-persistenced --user nobody --no-persistence-mode\n"
STAY = "#!/bin/sh\nexec sleep infinity\n"


def of_nvidia() -> tuple[Stub, ...]:
    """Two branches under the same names, and the toolkit."""
    return (
        *(stub for version in (DRIVER, NEWER) for stub in _driver(version)),
        Stub("cuda-toolkit-12-9", "12.9.1-1", files={"/usr/local/cuda-12.9/version.json": "{}\n"}),
    )


def _driver(version: str) -> tuple[Stub, ...]:
    exact = f"(= {version}-1)"
    return (
        Stub("nvidia-kernel-open-dkms", f"{version}-1", "dkms", {"/usr/src/nvidia-current/version": f"{version}\n"},
             postinst="dkms autoinstall"),
        Stub("nvidia-driver-cuda", f"{version}-1", f"libcuda1 {exact}, nvidia-kernel-open-dkms {exact}"),
        Stub("libcuda1", f"{version}-1", files={"/usr/share/libcuda1/stub": version}),
        Stub("nvidia-persistenced", f"{version}-1", files={
            "/lib/systemd/system/nvidia-persistenced.service": PERSISTENCED, "/usr/bin/nvidia-persistenced": STAY,
        }),
    )  # fmt: skip


def keyring(public: Path) -> Stub:
    """NVIDIA's package with the repository's key."""
    return Stub("cuda-keyring", "1.1-1", files={"/usr/share/keyrings/cuda-archive-keyring.gpg": public.read_bytes()})


def of_debian(kernel: str, version: str) -> tuple[Stub, ...]:
    """What Debian has beside the running `kernel` (as in `uname -r`), whose metapackage has this version."""
    build = Path(__file__).with_name("build-module").read_text()
    return (
        Stub("gcc", "4:12.2.0-3"),
        Stub("g++", "4:12.2.0-3", "gcc (= 4:12.2.0-3)"),
        Stub("python3-dev", "3.11.2-1+b1"),
        Stub("dkms", "3.0.10-8+deb12u1", files={
            "/usr/sbin/dkms": DKMS, "/usr/lib/dkms/build-module": build,
            "/etc/kernel/postinst.d/dkms": '#!/bin/sh\nexec dkms autoinstall -k "$1"\n',
        }),
        headers(kernel, version),
        Stub("linux-headers-amd64", version, f"linux-headers-{kernel} (= {version})"),
    )  # fmt: skip


def headers(kernel: str, version: str) -> Stub:
    """Of one kernel."""
    return Stub(f"linux-headers-{kernel}", version, files={f"/usr/src/linux-headers-{kernel}/Makefile": "\n"})


def upgraded_kernel(running: str, version: str) -> Stub:
    """A newer kernel under its own release's name: a copy of the running one."""
    return Stub(
        f"linux-image-{NEXT_KERNEL}", version,
        postinst=f"""
cp /boot/vmlinuz-{running} /boot/vmlinuz-{NEXT_KERNEL}
cp /boot/initrd.img-{running} /boot/initrd.img-{NEXT_KERNEL}
mkdir -p /lib/modules/{NEXT_KERNEL}
cp -a /lib/modules/{running}/kernel /lib/modules/{running}/modules.builtin /lib/modules/{running}/modules.order \\
    /lib/modules/{NEXT_KERNEL}
depmod {NEXT_KERNEL}
for hook in dkms zz-update-grub; do /etc/kernel/postinst.d/$hook {NEXT_KERNEL}; done
""",
    )  # fmt: skip
