"""The fleet. Edit this list; what all of them share is in group_data/ws.py: also what they serve, the published recipe
dsv4-flash-amxint4-top4, which pays for its speed with accuracy (docs/recipes.md).

A host that differs is a tuple: ("ws03", {"cpuinfer": 38}).
"""

ws = ["ws01", "ws02"]
