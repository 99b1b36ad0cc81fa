"""What is measured on a host: each program runs there by itself; beside it stands the type of its JSON."""
