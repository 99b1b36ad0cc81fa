"""How the virtual workstation differs from the real one: two cores a socket, 2 GiB a node, no AVX-512, no GPU."""

recipe = "tests/lab/recipe.toml"
hardware = {"sockets": 2, "cores_per_socket": 2}
hugepages = {"policy": "hugetlb", "per_node": 64}
kernel_command_line = ["transparent_hugepage"]  # so that the deploy has to reboot
stack = None  # the packages of the server are no use without AVX-512, and there is no network to get them from
measure = "never"  # an emulated machine's figures mean nothing; its checks can be run by themselves
gpu = None  # an emulated machine has no card
