"""What every workstation of the fleet is to be. Every key and its default: ktfleet/config.py."""

# About 28 tok/s (published); int4 experts, and four of the six a token: what that costs in answers is not measured.
recipe = "dsv4-flash-amxint4-top4"
hardware = {"sockets": 2, "cores_per_socket": 20}
hugepages = {"policy": "thp"}
data = {"label": "models", "mount": "/srv/models"}
weights = {"source": {"kind": "hub"}}
