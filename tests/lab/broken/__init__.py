"""What is broken and repaired on one machine: each boot takes a minute."""
