"""Weights on a disk: what they have to be, whether they are complete, where they come from.

Everything here runs on a host by itself, too (host/bundle.py): Python >= 3.10, the standard library, ktfleet.problem.
"""
