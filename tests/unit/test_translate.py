"""What the translations say, and in which order."""

import pytest

from ktfleet.translate import TABLE, translate

GCC = (
    "/usr/local/cuda-12.9/include/crt/host_config.h:137:2: error: #error -- unsupported GNU version! gcc versions later"
)
GLIBC = (
    "/usr/local/cuda/include/crt/math_functions.h(2556): error: exception specification is incompatible with that of "
    'previous function "cospi" (declared at line 79 of /usr/include/x86_64-linux-gnu/bits/mathcalls.h)'
)


@pytest.mark.parametrize(("text", "cause", "remedy"), [
    ("No devices were found", "no card answers", "modinfo"),
    ("NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x22:0x56:884)", "cannot map the card's memory", "Above 4G"),
    ("NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x62:0x65:1792)", "cannot start the card", "first NVRM line"),
    ("Failed to initialize NVML: Driver/library version mismatch", "updated under the running", "reboot"),
    ("RM has detected an NVML/RM version mismatch.", "updated under the running", "reboot"),
    ("CUDA error: no kernel image is available for execution on the device", "no machine code", "sm_120"),
    ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service", "Secure Boot is on", "mokutil"),
    ("Loading of module with unavailable key is rejected", "Secure Boot is on", "signed modules"),
    (GCC, "compiler is newer", "g++-14"),
    (GLIBC, "glibc 2.41", "CUDA 13.0"),
    (GLIBC.replace("cospi", "sinpif"), "glibc 2.41", "CUDA 13.0"),
    ("nvcc fatal : Unsupported gpu architecture 'compute_120a'", "older than the card", "install the wanted toolkit"),
    ("NVRM: The NVIDIA probe routine was not called for 1 device(s).", "another kernel driver", "blacklist"),
])  # fmt: skip
def test_a_known_error_becomes_cause_and_remedy_in_one_line(text: str, cause: str, remedy: str) -> None:
    problem = translate(f"something before\n{text}\nand after")
    assert problem is not None
    assert cause in problem.what
    assert remedy in problem.do
    assert "\n" not in str(problem)
    assert problem.seen.startswith(f"'{text[:40]}")


def test_a_cause_wins_over_its_consequences() -> None:
    log = (
        "NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x22:0x56:884)\n"
        "NVRM: The NVIDIA GPU 0000:65:00.0 installed in this system requires use of the NVIDIA open kernel modules."
    )
    problem = translate(log)
    assert problem is not None
    assert "proprietary" in problem.what
    lost = translate("NVRM: GPU has fallen off the bus.\nRmInitAdapter failed! (0x22:0x56:894)")
    assert lost is not None
    assert "vanished" in lost.what, "not a BIOS setting: the card is gone"


@pytest.mark.parametrize("text", ["", None, "everything is fine", "cospi is a function"])
def test_what_is_not_known_is_not_translated(text: str | None) -> None:
    assert translate(text) is None


def test_a_long_line_is_cut() -> None:
    problem = translate("x" * 500 + " out of memory")
    assert problem is not None
    assert len(problem.seen) < 200


def test_every_row_has_a_source_and_speaks_in_one_line() -> None:
    for row in TABLE:
        assert all((row.cause, row.wanted, row.do, row.source))
        assert "\n" not in row.cause + row.wanted + row.do
