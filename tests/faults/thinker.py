"""A program as a mind that plays a script, and records its input.

`thinker.py MARKS AGENT SCRIPT`, started for each thought: it imports only what it needs. The script is a
JSON list of turns, each a list of calls; the next turn is the first with a call that has not succeeded yet, as the
conversation says.
"""

import json
import sys
import time

marks, agent, script = sys.argv[1:]
messages = json.load(sys.stdin).get("messages", ())
answers = [message for message in messages if message["role"] == "tool"]
over = ("already", "none is in focus")  # the answer to a call that succeeded before its process, or the power, ended
good = {answer["call_id"] for answer in answers if answer.get("ok") or any(word in answer["text"] for word in over)}
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
    file.write(
        json.dumps({"agent": agent, "day": int(time.time() // 86_400), "moment": time.monotonic(), "told": messages})
        + "\n"
    )
print(json.dumps({"text": "done", "calls": calls}))
