"""The server's environment: what builds it on the host, stdlib only."""
