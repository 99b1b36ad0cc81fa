"""What is looked at on one machine that is deployed to once: each boot takes a minute."""
