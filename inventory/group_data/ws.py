"""What every workstation of the fleet is to be. Every key and its default: ktfleet/config.py."""

recipe = "dsv4-flash-amxint4"
hardware = {"sockets": 2, "cores_per_socket": 20}
hugepages = {"policy": "thp"}
data = {"label": "models", "mount": "/srv/models"}
weights = {"source": {"kind": "hub"}}
