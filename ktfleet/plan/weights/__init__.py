"""The weights: from a source to a disk of the host, and converted there."""
