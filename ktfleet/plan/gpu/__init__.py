"""The card's driver and toolkit: what to install (packages, wanted), why not (refusals), and how (changes)."""

from ktfleet.plan.gpu.wanted import Installation, installation

__all__ = ["Installation", "installation"]
