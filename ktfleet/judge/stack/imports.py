"""What has to work without a card: the expert kernels' variant, and imports that are known to break."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.judge.stack.outcome import failed, skipped
from ktfleet.measure.stack_record import Kernel, Outcome, Record
from ktfleet.verdict import Verdict


def judge(variant: str, record: Record) -> Iterator[Verdict]:
    """`variant`: of kt-kernel's extension, the one that the configuration wants loaded."""
    proofs = record.proofs
    yield _kernel(variant, proofs.kt_kernel)
    key, wanted = "sgl_kernel payload", "its objects joined and of the recorded sha256"
    why = "they come in parts, and joining them takes minutes and 4 GB: not at the server's first start"
    if proofs.payload is None:
        yield skipped(key, "sgl_kernel")
    elif proofs.payload.proven is None:
        yield failed(key, wanted, why, proofs.payload)
    else:
        found = proofs.payload.proven
        total = sum(found.sizes.values()) / 1e9
        yield Verdict(key, "pass", f"{len(found.sizes)} objects, {total:.1f} GB, in {found.folder}", wanted, why)
    key, wanted, why = "tilelang", "tvm-ffi and tilelang in one process", "each registers its types with the other"
    if proofs.tilelang is None:
        yield skipped(key, "tilelang with tvm-ffi")
    elif proofs.tilelang.proven is None:
        yield failed(key, wanted, why, proofs.tilelang)
    else:
        pair = proofs.tilelang.proven
        yield Verdict(key, "pass", f"tilelang {pair.tilelang} with tvm-ffi {pair.tvm_ffi}", wanted, why)
    key, wanted, why = "server import", "its command line imported", "sglang and transformers have to fit each other"
    if proofs.server is None:
        yield skipped(key, "sglang-kt with transformers-kt")
    elif proofs.server.proven is None:
        yield failed(key, wanted, why, proofs.server)
    else:
        yield Verdict(key, "pass", f"imported in {proofs.server.seconds:.0f} s", wanted, why)


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
