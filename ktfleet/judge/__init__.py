"""Verdicts on what was measured: a package a measurement, pure. What a verdict is: ktfleet/verdict.py."""
