"""How pyinfra reaches and drives every host."""

from ktfleet.pyinfra_api import transport

_sudo = True
ssh_paramiko_connect_kwargs = {"transport_factory": transport.nodelay}
