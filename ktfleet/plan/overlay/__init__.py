"""The overlay of a host: what it is asked for, what it consists of, where it lies."""

from ktfleet.plan.overlay.wanted import Overlay, overlay

__all__ = ["Overlay", "overlay"]
