"""What a host is: `probe` reads it on the host itself, `state` types what the probe prints."""
