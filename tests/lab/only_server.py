"""What deploy.py does for the server, without the rest."""

from pyinfra import host, inventory

from tasks import account, preflight, server, service, stack

plan = preflight.admit(inventory, host)
account.create(plan)
service.prepare(plan)
stack.install(plan)
server.serve(plan)
preflight.release()
