"""The virtual workstation that `python -m tests.lab up` boots (another one: KTFLEET_LAB=its machine.json)."""

import json
import os
from pathlib import Path

from pyinfra.api.exceptions import InventoryError

_file = Path(os.environ.get("KTFLEET_LAB", ".lab/demo/machine.json"))
if not _file.exists():
    raise InventoryError(f"no lab machine: seen no {_file}, wanted a booted one; run .venv/bin/python -m tests.lab up")
try:
    _machine = json.loads(_file.read_text())
except ValueError as _error:
    raise InventoryError(f"{_file}: seen {_error}, wanted a machine.json; name another with KTFLEET_LAB") from None

lab = [
    (
        "lab",
        {
            "ssh_hostname": _machine["host"],
            "ssh_port": _machine["port"],
            "ssh_user": _machine["user"],
            "ssh_key": _machine["key"],
            "ssh_known_hosts_file": _machine["known_hosts"],
            "ssh_strict_host_key_checking": "yes",
        },
    )
]
