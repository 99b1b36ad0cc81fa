"""What deploy.py does for the weights, without the rest."""

from pyinfra import host, inventory

from tasks import account, preflight, weights

plan = preflight.admit(inventory, host)
account.create(plan)
weights.mount_data(plan)
weights.download(plan)
weights.convert(plan)
preflight.release()
