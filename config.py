"""pyinfra reads this before every run: runs that would end well although nothing was done are refused.

It also lets Python keep its bytecode, which pyinfra's command line forbids: all of ktfleet would be compiled anew in
every run.
"""

import sys

# First: it counts for what is imported later.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from ktfleet.pyinfra_api import guard  # noqa: E402

guard.refuse_no_wait()
guard.fail_without_hosts()
