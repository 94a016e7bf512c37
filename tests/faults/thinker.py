"""A program as a mind that plays a script, and marks what it was told.

`thinker.py MARKS AGENT SCRIPT`, started anew for each thought: it imports nothing that it could do without. The script is a
JSON list of turns, each a list of calls; the next turn is the first with a call that has not succeeded yet, as the
conversation says.
"""

import json
import sys
import time

marks, agent, script = sys.argv[1:]
messages = json.load(sys.stdin).get("messages", ())
good = {message["call_id"] for message in messages if message["role"] == "tool" and message.get("ok")}
done = [call["tool"] for message in messages for call in message.get("calls", ()) if call["id"] in good]
calls = []
for turn in json.loads(script):
    for call in turn:
        if call["tool"] in done:
            done.remove(call["tool"])
        else:
            calls.append(call)
    if calls:
        break
with open(f"{marks}/thoughts", "a") as file:
    file.write(json.dumps({"agent": agent, "day": int(time.time() // 86_400), "told": messages}) + "\n")
print(json.dumps({"text": "done", "calls": calls}))
