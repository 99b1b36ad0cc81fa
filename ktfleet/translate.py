"""What drivers, compilers and programs say when something is wrong, in words that help. The table is the data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ktfleet.problem import Problem

_LONGEST = 160
"""Characters of the original text that a problem quotes."""


@dataclass(frozen=True)
class Translation:
    """A pattern for what is said; its cause, what is wanted instead, the remedy, and how we know.

    fatal: a server that says it is of no use, although it goes on.
    """

    pattern: re.Pattern[str]
    cause: str
    wanted: str
    do: str
    source: str
    fatal: bool = False


def _row(pattern: str, cause: str, wanted: str, do: str, source: str, *, fatal: bool = False) -> Translation:
    return Translation(re.compile(pattern, re.IGNORECASE), cause, wanted, do, source, fatal)


TABLE: tuple[Translation, ...] = (
    _row(
        r"Core \d+ inside NUMA node \d+ not found|Failed to set thread CPU binding",
        "a worker found no core of its own: it runs anywhere and slows all others, tenfold",
        "a physical core for each worker",
        "lower cpuinfer; remove AllowedCPUs= and cpusets from the server's unit and its slice",
        "kt-kernel 0.7.2's worker pool; ktransformers issue 2088 (28 to 2.7 tok/s)",
        fatal=True,
    ),
    _row(
        r"numa_sched_setaffinity_v2_int\(\) failed|set_mempolicy: ",
        "the kernel refuses to bind the workers' threads or memory to their node",
        "a process that may",
        "look for a container, a cpuset or a system call filter around the server",
        "libnuma; read in kt-kernel 0.7.2",
        fatal=True,
    ),
    _row(
        r"alloc \d+ from other numa",
        "a node has no memory left for its weights, and the rest of them lies on another one",
        "all of a pool's weights on its node",
        "look who holds that node's memory (`numastat -m`): huge page pools, caches, other programs; then restart it",
        "kt-kernel 0.7.2's own message",
        fatal=True,
    ),
    _row(
        r"NUMA node \d+ not found",
        "the server was started for more pools than there are NUMA nodes",
        "a pool a node",
        "look at `lscpu`: node interleaving and sub-NUMA clustering off in the BIOS",
        "kt-kernel 0.7.2's own message",
        fatal=True,
    ),
    _row(
        r"address already in use|Errno 98\]",
        "another program listens where the server is to",
        "a free port",
        "`ss -ltnp` names it: stop it, or set server.port",
        "EADDRINUSE, errno(3)",
    ),
    _row(
        r"requires use of the NVIDIA open kernel modules",
        "the proprietary kernel module cannot drive this card",
        "NVIDIA's open kernel modules (mandatory since Blackwell)",
        "install the open flavour of the driver and reboot; the BIOS is not to blame",
        "the driver's own message; NVIDIA's driver README, Open Linux Kernel Modules",
    ),
    _row(
        r"fallen off the bus",
        "the card vanished from the PCIe bus",
        "a card that answers",
        "power the machine off and on; look at power cables, riser and seating, then try another slot",
        "NVIDIA's Xid catalog, Xid 79",
    ),
    _row(
        r"Driver/library version mismatch|NVML/RM version mismatch|API mismatch: the client",
        "the driver was updated under the running kernel module",
        "one version in kernel and user space",
        "reboot; nothing has to be reinstalled",
        "nvmlReturn_t NVML_ERROR_LIB_RM_VERSION_MISMATCH; homelab issue 4110 (after unattended-upgrades)",
    ),
    _row(
        r"Key was rejected by service|Required key not available"
        r"|Loading of (?:unsigned module|module with unavailable key) is rejected",
        "Secure Boot is on and the kernel does not know the key that signed the module",
        "a module with a known signature",
        "use the distribution's signed modules, or enrol the key (mokutil --import, reboot, confirm at the console), "
        "or switch Secure Boot off",
        "Linux, kernel/module/signing.c; Ubuntu's wiki, UEFI/SecureBoot/DKMS",
    ),
    _row(
        r"NVIDIA probe routine was not called",
        "another kernel driver (nouveau, nova_core) took the card at boot",
        "the card bound to nvidia",
        "blacklist nouveau and nova_core, update-initramfs -u -k all, reboot",
        "the driver's own message, which names nouveau in its next lines",
    ),
    _row(
        r"RmInitAdapter failed!? *\(0x22:0x56",
        "the driver cannot map the card's memory",
        "a card that initialises",
        "BIOS: enable Above 4G decoding and Resizable BAR; do not reinstall the driver",
        "open-gpu-kernel-modules issues (osInitNvMapping failed, 0x22:0x56) with the open flavour installed",
    ),
    _row(
        r"RmInitAdapter failed",
        "the driver cannot start the card",
        "a card that initialises",
        "read the first NVRM line of the kernel log; check the open flavour, then power cables and seating",
        "open-gpu-kernel-modules issues 326, 673, 789",
    ),
    _row(
        r"No devices were found",
        "the driver runs and no card answers it",
        "a card that initialises",
        "check the flavour (modinfo -F license nvidia: Dual MIT/GPL), then the kernel log for RmInitAdapter",
        "nvidia-smi's text for a device count of 0",
    ),
    _row(
        r"\bSIGILL\b|Illegal instruction",
        "the program uses instructions that this CPU has not",
        "the variant of kt-kernel's extension for this CPU (a Skylake-SP: avx512_base)",
        "unset KT_KERNEL_CPU_VARIANT, which overrules the detection; compare `lscpu` with stack.cpu_variant",
        "ktransformers issues 1713 and 1908; kt_kernel/_cpu_detect.py",
    ),
    _row(
        r"__ffi_repr__",
        "apache-tvm-ffi and tilelang register the same type, which ends the process",
        "a pair that imports together (apache-tvm-ffi 0.1.11 with tilelang 0.1.10)",
        "install exactly the lock; let nothing upgrade one of the two",
        "tilelang issue 2367; ktransformers issue 2045",
    ),
    _row(
        r"non-default argument 'quantization_config'|is not a registered model",
        "another transformers than sglang-kt's own is installed",
        "transformers-kt of the same release, and no plain transformers",
        "install exactly the lock; remove the environment if plain transformers was ever put into it",
        "ktransformers issues 1956, 1977 and 1992",
    ),
    _row(
        r"flashinfer-cubin version[^\n]*does not match",
        "flashinfer and its compiled kernels are of two versions",
        "flashinfer-python and flashinfer-cubin of one",
        "install exactly the lock",
        "flashinfer/jit/env.py; ktransformers issue 1974",
    ),
    _row(
        r"No writable sgl-kernel-kt payload cache",
        "there is no room to join sgl_kernel's objects",
        "4 GB free in the home of the service's user",
        "free some, then run it again",
        "sgl_kernel/payload_runtime.py",
    ),
    _row(
        r"\b(?:nvcc|cicc|ptxas|cudafe\+\+|cc1plus|ninja)\b[^\n]*\bKilled\b|Killed signal terminated program"
        r"|\b(?:exit|return|status|code)\b\D{0,24}\b137\b",
        "a compiler was killed because the memory was full",
        "room for it: up to 8 GiB a compiler",
        "stop what takes the memory, or set MAX_JOBS lower, then run it again",
        "flashinfer issues 4410 and 3636; 137 is 128 + SIGKILL",
    ),
    _row(
        r"cannot find -lcuda\b",
        "the linker does not find the driver's library",
        "libcuda.so on its path",
        "install the wanted toolkit and put its lib64/stubs into LIBRARY_PATH",
        "flashinfer issue 3636; ld's own message",
    ),
    _row(
        r"Could not find CUDA installation|CUDA_HOME environment variable is not set|nvcc: (?:command )?not found",
        "there is no CUDA toolkit to compile with",
        "nvcc, and CUDA_HOME naming its folder",
        "install the wanted toolkit: gpu.toolkit names it",
        "tvm_ffi/cpp/extension.py; torch/utils/cpp_extension.py",
    ),
    _row(
        r"Found no NVIDIA driver|libcuda\.so\.1: cannot open shared object file",
        "the driver does not run, or its user space is not installed",
        "a driver that answers nvidia-smi",
        "see what checks/gpu.py says; install the wanted driver branch",
        "torch/cuda/__init__.py; the dynamic linker",
    ),
    _row(
        r"no kernel image is available",
        "the program has no machine code for this card",
        "code built for the card's architecture",
        "build it for that architecture (sm_120: CUDA 12.8 or newer), or install a wheel that has it",
        "cudaErrorNoKernelImageForDevice, CUDA runtime API",
    ),
    _row(
        r"Unsupported gpu architecture|is not defined for option 'gpu-architecture'",
        "this nvcc is older than the card",
        "an nvcc that knows the architecture (sm_120: 12.8 or newer)",
        "install the wanted toolkit; put no older nvcc before it on PATH",
        "nvcc's own message; CUDA 12.8 release notes (Blackwell)",
    ),
    _row(
        r"unsupported GNU version",
        "the C++ compiler is newer than this CUDA knows",
        "gcc 14 or older for CUDA 12.8 and 12.9, gcc 15 or older for 13.0",
        "install g++-14 and set NVCC_CCBIN=g++-14",
        "CUDA's include/crt/host_config.h, which prints it",
    ),
    _row(
        r"(?:cospi|sinpi)f?\b[^\n]*exception specification|exception specification[^\n]*\b(?:cospi|sinpi)f?\b",
        "glibc 2.41 and newer declare functions that CUDA before 13.0 declares otherwise",
        "glibc 2.40 or older, or CUDA 13.0",
        "use a distribution with an older glibc (Debian 12, Ubuntu 24.04), or CUDA 13.0",
        "glibc 2.41 NEWS (cospi, sinpi); CUDA's include/crt/math_functions.h",
    ),
    _row(
        r"driver version is insufficient for CUDA runtime",
        "the driver is older than the program's CUDA, or does not run",
        "a driver that is at least as new",
        "install the wanted driver branch and reboot",
        "cudaErrorInsufficientDriver, CUDA runtime API",
    ),
    _row(
        r"\bout of memory\b",
        "something else holds the card's memory",
        "free memory on the card",
        "stop what holds it: nvidia-smi lists it",
        "cudaErrorMemoryAllocation, CUDA runtime API",
    ),
    _row(
        r"Driver Not Loaded",
        "the NVIDIA kernel module is not loaded",
        "a loaded module",
        "see what `modprobe nvidia` says; install the driver if there is no module for this kernel",
        "nvmlReturn_t NVML_ERROR_DRIVER_NOT_LOADED",
    ),
    _row(
        r"NVML Shared Library Not Found",
        "the driver's user space is not installed",
        "libnvidia-ml.so.1",
        "install the wanted driver branch",
        "nvmlReturn_t NVML_ERROR_LIBRARY_NOT_FOUND",
    ),
    _row(
        r"No space left on device",
        "the disk is full",
        "room for what is written",
        "free some, then run deploy.py again",
        "ENOSPC, errno(3)",
    ),
    _row(
        r"Hash mismatch for",
        "a package is not the one that the lock names",
        "the hash in the lock",
        "run deploy.py again; if it stays so, stack.index or stack.wheels has another file of that name: do not use it "
        "before you know why",
        "uv pip install --require-hashes, uv 0.13",
    ),
    _row(
        r"all requirements must have a hash",
        "the lock has packages without hashes",
        "a hash for each",
        "make it with `uv pip compile --generate-hashes`",
        "uv pip install --require-hashes, uv 0.13",
    ),
    _row(
        r"Because \S+ (?:has no wheels|was not found|only has wheels)|there is no version of ",
        "a package of the lock cannot be had for this machine",
        "a wheel for this Python, architecture and glibc",
        "look what stack.index and stack.wheels have of it, and for which Python the lock was made",
        "uv's resolver (No solution found), uv 0.13",
    ),
    _row(
        r"error sending request for url|HTTP status (?:client|server) error|dns error|Failed to fetch",
        "the host cannot fetch packages",
        "an answer",
        "repair its way there, or set stack.index, stack.wheels or stack.python_mirror to what it can reach",
        "uv's HTTP client, uv 0.13",
    ),
    _row(
        r"No interpreter found",
        "there is no such Python on the host",
        "the interpreter that was there when the plan was made",
        "run deploy.py again",
        "uv venv, uv 0.13",
    ),
)
"""The first row that matches anywhere in a text wins: a cause stands before its consequences."""


def translate(text: str | None) -> Problem | None:
    """Cause and remedy of what a text says; None when the table does not know it."""
    for row in TABLE:
        match = row.pattern.search(text or "")
        if match:
            return Problem(row.cause, _quote(match), row.wanted, row.do)
    return None


def fatal(text: str) -> Problem | None:
    """The same, of what ends a server's use although it goes on."""
    for row in TABLE:
        match = row.pattern.search(text) if row.fatal else None
        if match:
            return Problem(row.cause, _quote(match), row.wanted, row.do)
    return None


def _quote(match: re.Match[str]) -> str:
    """The line of the match, or as much of it as fits."""
    text = match.string
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    line = " ".join(text[start : end if end >= 0 else None].split())
    return f"'{line[:_LONGEST]}'" if len(line) <= _LONGEST else f"'{line[:_LONGEST]}...'"
