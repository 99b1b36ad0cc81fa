"""The server's own start on the host, stdlib only: what its unit runs, and what is looked at before."""
