"""A pyinfra deploy file without ktfleet: its own facts and operations, for the decisions that deploy.py makes.

Data: `root` (a captured tree) in front of every path; `rendered`, a folder with the managed files; `wanted`, what
bench/rerun.py took from the plan.
"""

from shlex import quote

from pyinfra import host
from pyinfra.api import DeployError
from pyinfra.facts.server import Command
from pyinfra.operations import files, server, systemd

root, rendered, wanted = host.data.root, host.data.rendered, host.data.wanted
CPU = f"{root}/sys/devices/system/cpu"
NODE = f"{root}/sys/devices/system/node"


def lines(command: str) -> list[str]:
    return (host.get_fact(Command, f"{command} 2>/dev/null || true") or "").splitlines()


def chosen(text: str) -> str:
    return text.partition("[")[2].partition("]")[0] or text.strip()


# What deploy.py refuses for: distribution, CPU flags, sockets and nodes, the memory of each node.
if "ID=debian" not in lines(f"cat {root}/etc/os-release"):
    raise DeployError("not Debian")
if " avx512f " not in lines(f"grep -m1 ^flags {root}/proc/cpuinfo")[0]:
    raise DeployError("no AVX-512")
if set(lines(f"cat {CPU}/cpu*/topology/physical_package_id")) != {"0", "1"}:
    raise DeployError("not two sockets")
if len(lines(f"cat {CPU}/cpu*/topology/thread_siblings_list")) != 80:
    raise DeployError("not 80 CPUs")
if len(lines(f"cat {NODE}/node*/cpulist")) != 2:
    raise DeployError("not two nodes")
if min(int(line.split()[-2]) for line in lines(f"grep -h MemTotal {NODE}/node*/meminfo")) < 100 << 20:
    raise DeployError("too little memory on a node")
command_line = lines(f"cat {root}/proc/cmdline")

files.file(name="Record of earlier values", path=root + wanted["before"])
for path, mode in wanted["files"].items():
    files.put(name=f"Place {path}", src=f"{rendered}{path}", dest=f"{root}{path}", mode=mode)
for path in wanted["no_files"]:
    files.file(name=f"Remove {path}", path=f"{root}{path}", present=False)
systemd.service(name="Run it at boot", service=wanted["unit"], running=None, enabled=True)
for key, value in wanted["sysctl"].items():
    server.sysctl(name=f"Set {key}", key=key, value=value)
for pattern, value in wanted["sysfs"].items():
    if {chosen(text) for text in lines(f"cat {root}{pattern}")} - {value}:
        write = f"for file in {root}{pattern}; do echo {quote(value)} >$file; done"
        server.shell(name=f"Set {pattern}", commands=[write])
for path in wanted["masked"]:
    files.link(name=f"Mask {path}", path=f"{root}{path}", target="/dev/null")
if wanted["command_line"] and not set(wanted["command_line"]) <= set(" ".join(command_line).split()):
    server.reboot(name="Reboot")
