"""What has to work on the card: torch, sgl_kernel, Triton, and the kernel that the server compiles first."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.config import Gpu
from ktfleet.judge.stack.outcome import failed, skipped
from ktfleet.measure.stack_record import Card, Outcome, Record
from ktfleet.verdict import Verdict

ERROR = 0.01
"""Relative L2 that rounding to bf16 may cost: it has 8 bits, 0.4 %."""

_WHY = "a card that torch calls available can still be unable to run anything"


def judge(wanted: Gpu | None, record: Record) -> Iterator[Verdict]:
    """`wanted` None: the configuration has no card."""
    if wanted is None:
        yield Verdict("stack on the card", "skipped", "not looked at", "nothing", "the configuration says gpu = None")
        return
    if not record.gpu:
        why = "the proof was made without --gpu"
        yield Verdict("stack on the card", "inconclusive", "nothing", "proofs on the card", why)
        return
    proofs = record.proofs
    yield from _torch(wanted, proofs.torch)
    key, text = "sgl_kernel on the card", "an operation like torch's"
    if proofs.sgl_kernel is None:
        yield skipped(key, "sgl_kernel with torch")
    elif proofs.sgl_kernel.proven is None:
        yield failed(key, text, _WHY, proofs.sgl_kernel)
    else:
        yield _close(key, proofs.sgl_kernel.proven.error, text)
    yield _triton(record)
    yield _fp8_gemm(wanted, record)


def _torch(wanted: Gpu, outcome: Outcome[Card] | None) -> Iterator[Verdict]:
    key = "torch on the card"
    if outcome is None:
        yield skipped(key, "torch")
        return
    card = outcome.proven
    if card is None:
        yield failed(key, "a bf16 product like the CPU's", _WHY, outcome)
        return
    numbers = "({}, {})".format
    seen, capability = numbers(*card.capability), numbers(*wanted.capability)
    right = card.capability == wanted.capability
    yield Verdict("torch capability", "pass" if right else "fail", f"{seen}, {card.name}", capability,
                  "the environment is made for one kind of card", "make gpu.capability the card's")  # fmt: skip
    built = wanted.sm in card.architectures
    yield Verdict("torch architectures", "pass" if built else "fail", ", ".join(card.architectures) or "none",
                  wanted.sm, "without machine code for the card its first kernel dies",
                  "lock a torch that is built for it (CUDA 12.8 or newer has sm_120)")  # fmt: skip
    yield _close(key, card.error, "a bf16 product like the CPU's")


def _close(key: str, error: float, wanted: str) -> Verdict:
    # Written so that a NaN fails.
    right = error <= ERROR
    do = "do not serve with this environment: see checks/gpu.py whether the card computes right at all"
    return Verdict(key, "pass" if right else "fail", f"{error:.2g} off", f"{wanted}, {ERROR:g} off at most", _WHY, do)


def _triton(record: Record) -> Verdict:
    key, wanted, outcome = (
        "Triton on the card",
        "a kernel compiled by the service's user, and right",
        record.proofs.triton,
    )
    if outcome is None:
        return skipped(key, "triton with torch")
    if outcome.proven is None:
        return failed(key, wanted, _WHY, outcome)
    wrong = outcome.proven.wrong
    do = "do not serve with this environment: see checks/gpu.py whether the card computes right at all"
    return Verdict(key, "fail" if wrong else "pass", f"{wrong} wrong numbers, by {record.user}", wanted, _WHY, do)


def _fp8_gemm(wanted: Gpu, record: Record) -> Verdict:
    key, text = "FP8 product", "compiled before the server starts"
    why = "no wheel has it for sm_120; compiled in the first start it takes minutes, and memory beside the weights"
    outcome = record.proofs.fp8_gemm
    if wanted.capability[0] != 12:
        return Verdict(
            key, "skipped", "not looked at", "nothing", f"the server compiles it for sm_12x, not {wanted.sm}"
        )
    if outcome is None:
        return skipped(key, "sglang-kt with flashinfer")
    if outcome.proven is None:
        return failed(key, text, why, outcome)
    seen = f"in {outcome.seconds:.0f} s, MAX_JOBS={outcome.proven.jobs}"
    return Verdict(key, "pass", seen, text, why)
