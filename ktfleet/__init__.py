"""ktfleet: the decisions behind a fleet of 2-socket Xeon workstations that serve one large model."""
