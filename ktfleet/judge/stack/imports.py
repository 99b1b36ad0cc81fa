"""What has to work without a card: the expert kernels' variant, and imports that are known to break."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.judge.stack.outcome import failed, passed, skipped
from ktfleet.measure.stack_record import Kernel, Outcome, Record
from ktfleet.verdict import Verdict


def judge(variant: str, record: Record) -> Iterator[Verdict]:
    """`variant`: of kt-kernel's extension, the one that the configuration wants loaded."""
    proofs = record.proofs
    yield _kernel(variant, proofs.kt_kernel)
    yield passed(
        "sgl_kernel payload",
        "its objects joined and of the recorded sha256",
        "they come in parts, and joining them takes minutes and 4 GB: not at the server's first start",
        proofs.payload,
        "sgl_kernel",
        lambda found: f"{len(found.sizes)} objects, {sum(found.sizes.values()) / 1e9:.1f} GB, in {found.folder}",
    )
    yield passed(
        "tilelang",
        "tvm-ffi and tilelang in one process",
        "each registers its types with the other",
        proofs.tilelang,
        "tilelang with tvm-ffi",
        lambda pair: f"tilelang {pair.tilelang} with tvm-ffi {pair.tvm_ffi}",
    )
    server = proofs.server
    yield passed(
        "server import",
        "its command line imported",
        "sglang and transformers have to fit each other",
        server,
        "sglang-kt with transformers-kt",
        lambda _: f"imported in {server.seconds:.0f} s" if server else "",
    )


def _kernel(variant: str, outcome: Outcome[Kernel] | None) -> Verdict:
    key = "kt_kernel variant"
    why = "a poorer one is several times slower and says nothing, a richer one dies of an illegal instruction"
    if outcome is None:
        return skipped(key, "kt-kernel")
    if outcome.proven is None:
        return failed(key, variant, why, outcome)
    seen = outcome.proven.variant
    if seen != variant:
        do = "compare with the CPU's flags in `lscpu`; a CPU that differs on purpose: set stack.cpu_variant"
        return Verdict(key, "fail", seen, variant, why, do)
    return Verdict(key, "pass", seen, variant, why)
