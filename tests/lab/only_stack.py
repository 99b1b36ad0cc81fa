"""What deploy.py does for the server's environment, without the rest."""

from pyinfra import host, inventory

from tasks import account, preflight, stack

plan = preflight.admit(inventory, host)
account.create(plan)
stack.install(plan)
preflight.release()
