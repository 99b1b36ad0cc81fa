"""What all tests share."""

from hypothesis import settings

# Machines are shared and noisy: a slow example proves nothing.
settings.register_profile("ktfleet", deadline=None)
settings.load_profile("ktfleet")
