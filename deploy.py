"""From a freshly installed workstation to a tuned and verified one: pyinfra inventory/ws.py deploy.py"""

from pyinfra import host, inventory

from checks import api, bandwidth, canary, decode, drift, experts, placement
from checks import gpu as gpu_check
from checks import server as server_check
from tasks import (
    account,
    cpu,
    gpu,
    kernel,
    measuring,
    memory,
    power,
    preflight,
    server,
    service,
    stack,
    system,
    weights,
)

plan = preflight.admit(inventory, host)  # refuses for the whole inventory before anything is touched
preflight.remember(plan)  # what was there before, kept on the host
system.tune(plan)
account.create(plan)
weights.mount_data(plan)
weights.download(plan)  # in the background: the longest step starts first
kernel.tune(plan)
memory.tune(plan)
cpu.tune(plan)
gpu.install(plan)  # may install a kernel and ask for a reboot
power.tune(plan)
service.prepare(plan)
kernel.reboot_if_needed(plan)
weights.download(plan)  # goes on with what the reboot stopped
stack.install(plan)  # beside the environment in use; switched over when proven
weights.convert(plan)  # waits for both
measuring.prepare(plan)
gpu_check.check(plan)
bandwidth.check(plan)  # what wants the machine for itself, before it serves
experts.check(plan)
server.serve(plan)  # restarted only when what it is made of has changed
drift.check(plan)  # after everything that changes something: it proves what the reboot left
server_check.check(plan)
placement.check(plan)
api.check(plan)
decode.check(plan)
canary.check(plan)
preflight.release()
