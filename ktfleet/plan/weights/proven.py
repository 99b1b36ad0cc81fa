"""What of the weights is to be true on a host, for the drift check. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.host.state import HostState
from ktfleet.plan import Plan, readback
from ktfleet.plan.claim import Claim
from ktfleet.plan.weights.changes import not_converted
from ktfleet.plan.weights.wanted import have_checkpoint, have_shards, proofs


def claims(plan: Plan, state: HostState) -> Iterator[Claim]:
    """The disk is mounted, and what is to lie on it is there and was proven. Its bytes are not read here."""
    job, data = plan.weights, plan.config.data
    if job is None or data is None:
        return
    held = state.mounts.get(data.mount)
    why = "weights on the root file system would not survive a reinstall"
    wanted = f"a disk on {data.mount}"
    if held is None:
        reason = state.unreadable.get(data.mount, "nothing")
        yield Claim("data disk", None, "nothing", wanted, f"it could not be read: {reason}")
    else:
        yield Claim("data disk", held.mount != "/", f"{held.device} on {held.mount}", wanted, why)
    why = "the server reads it; a folder gets its proof when it is complete"
    yield _folder("checkpoint", have_checkpoint(job, state), proofs(job)[0], state, why)
    if job.shards and (not_converted(plan) is None or have_shards(job, state)):
        yield _folder("converted weights", have_shards(job, state), proofs(job)[1], state, why)


def _folder(key: str, there: bool, proof: str, state: HostState, why: str) -> Claim:
    unread = readback.unread_file(proof, state)
    if unread:
        return Claim(key, None, "nothing", proof, f"it could not be read: {unread}")
    return Claim(key, there, "proven" if there else f"no {proof}", "proven", why)
