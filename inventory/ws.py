"""The fleet. Edit this list; what all of them share is in group_data/ws.py.

A host that differs is a tuple: ("ws03", {"cpuinfer": 38}).
"""

ws = ["ws01", "ws02"]
