"""The weights: from a source to a disk of the host, and converted there (wanted, refusals, changes)."""

from ktfleet.plan.weights.wanted import job, proofs

__all__ = ["job", "proofs"]
