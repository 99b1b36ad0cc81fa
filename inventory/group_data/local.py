"""This machine, configured as one of the fleet."""

import os

recipe = "dsv4-flash-amxint4"
_sudo = os.geteuid() != 0
