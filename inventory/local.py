"""The machine that pyinfra runs on. It is never rebooted from here: the run says when that is needed."""

local = ["@local"]
