"""A program as a mind: it does the task in one thought, or hands it over, and marks what it was told.

`thinker.py MARKS AGENT`, started anew for each thought: it imports nothing that it could do without.
"""

import json
import sys
import time

marks, agent = sys.argv[1:]
told = [message["text"] for message in json.load(sys.stdin).get("messages", ())]
calls = [{"tool": "finish_task", "arguments": {"result": "It floats."}}]
if agent == "ada" and any("PASS ON" in text for text in told):
    calls = [{"tool": "hand_over", "arguments": {"to": "bob", "reason": "bob knows boats"}}]
with open(f"{marks}/thoughts", "a") as file:
    file.write(json.dumps({"agent": agent, "told": told, "day": int(time.time() // 86_400)}) + "\n")
print(json.dumps({"text": "done", "calls": calls}))
