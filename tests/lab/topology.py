"""The processors and memory of a virtual workstation, as qemu arguments."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations

CPU_MODEL = "Intel(R) Xeon(R) Gold 6138 CPU @ 2.00GHz"
LOCAL_DISTANCE, SOCKET_DISTANCE = 11, 21  # ACPI SLIT: another node of the same socket, another socket


@dataclass(frozen=True, slots=True)
class Topology:
    """Sockets, cores, hyperthreads and NUMA nodes of a machine.

    `cores` counts per socket, `threads` per core (1: hyperthreads off). `nodes_per_socket` is 2 with sub-NUMA
    clustering. `node_mib` is the memory of a node in MiB, or one figure a node; 0 makes a node without memory.
    """

    sockets: int = 2
    cores: int = 2
    threads: int = 2
    node_mib: int | tuple[int, ...] = 2048
    nodes_per_socket: int = 1

    def __post_init__(self) -> None:
        if min(self.sockets, self.cores, self.threads, self.nodes_per_socket) < 1:
            raise ValueError(f"sockets, cores, threads and nodes: seen {self}, wanted 1 or more of each; raise them")
        if self.cores % self.nodes_per_socket:
            raise ValueError(
                f"cores of a node: seen {self.cores} cores on {self.nodes_per_socket} nodes, wanted the same number"
                " on each; change cores or nodes_per_socket"
            )
        if len(self.memory) != self.nodes or min(self.memory) < 0 or not self.memory[0]:
            raise ValueError(
                f"memory of the nodes: seen {self.memory}, wanted {self.nodes} figures, the first above 0; set node_mib"
            )

    @property
    def nodes(self) -> int:
        """NUMA nodes in all."""
        return self.sockets * self.nodes_per_socket

    @property
    def cpus(self) -> int:
        """Logical CPUs in all."""
        return self.sockets * self.cores * self.threads

    @property
    def memory(self) -> tuple[int, ...]:
        """MiB of each node."""
        return (self.node_mib,) * self.nodes if isinstance(self.node_mib, int) else self.node_mib

    @property
    def boot_seconds(self) -> float:
        """About how long the machine takes to answer ssh on two emulating cores: for progress, not for limits."""
        return 35 + 1.1 * self.cpus

    def qemu_arguments(self) -> list[str]:
        """Arguments for qemu-system-x86_64: processor, memory and NUMA nodes."""
        return [
            "-cpu", f"Skylake-Server,model-id={CPU_MODEL}",
            "-smp", f"{self.cpus},sockets={self.sockets},cores={self.cores},threads={self.threads}",
            "-m", f"{sum(self.memory)}M",
            *(argument for node in range(self.nodes) for argument in self._node(node)),
            *(argument for pair in combinations(range(self.nodes), 2) for argument in self._distance(*pair)),
        ]  # fmt: skip

    def as_dict(self) -> dict[str, object]:
        """The fields by name, for JSON."""
        return asdict(self)

    def _node(self, node: int) -> list[str]:
        # qemu numbers CPUs socket by socket, core by core, thread by thread: a node is a run of numbers.
        size = self.cpus // self.nodes
        numa = f"node,nodeid={node},cpus={node * size}-{node * size + size - 1}"
        if not self.memory[node]:
            return ["-numa", numa]
        memory = f"memory-backend-ram,id=node{node},size={self.memory[node]}M"
        return ["-object", memory, "-numa", f"{numa},memdev=node{node}"]

    def _distance(self, source: int, target: int) -> list[str]:
        # One direction is enough: qemu mirrors a table that is given as a triangle.
        same_socket = source // self.nodes_per_socket == target // self.nodes_per_socket
        distance = LOCAL_DISTANCE if same_socket else SOCKET_DISTANCE
        return ["-numa", f"dist,src={source},dst={target},val={distance}"]


LAB = Topology()
"""The small twin: 2 sockets x 2 cores x 2 threads, for tests."""

REAL = Topology(cores=20)
"""The workstation's 2 x 20 x 2 = 80 CPUs: slower to boot, for what depends on the count."""
