"""pyinfra reads this before every run: runs that would end well although nothing was done are refused."""

from ktfleet.pyinfra_api import guard

guard.refuse_no_wait()
guard.fail_without_hosts()
