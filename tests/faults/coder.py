"""A program as a mind that does what its task says, and mends a landing that comes back.

`coder.py`, started for each thought. The task has a line `work: COMMAND`, and `mend: COMMAND` for a check that fails. A
conflict is solved by keeping both sides. Imports only what it needs.
"""

import json
import sys

MARKS = "sed -i -E '/^(<{7} |>{7} |={7}$)/d' "
messages = json.load(sys.stdin).get("messages", ())
texts = [message["text"] if message["role"] == "user" else "" for message in messages]
lines = [line.strip() for text in texts for line in text.splitlines()]
commands = {
    word: next((line.removeprefix(f"{word}: ") for line in lines if line.startswith(f"{word}: ")), "true")
    for word in ("work", "mend")
}
start = max((at for at, text in enumerate(texts) if "Not landed: " in text), default=0)
returned = texts[start].rpartition("Not landed: ")[2] if "Not landed: " in texts[start] else ""
if not returned:
    command = commands["work"]
elif "the conflict marks:" in returned:
    names = returned.partition("the conflict marks:")[2].strip().partition("\n\n")[0]
    command = MARKS + " ".join(name.removeprefix("* ") for name in names.splitlines())
else:
    command = commands["mend"]
later = messages[start:]
good = {message["call_id"] for message in later if message["role"] == "tool" and message.get("ok")}
is_done = any(
    call["id"] in good and call["arguments"].get("command") == command
    for message in later
    for call in message.get("calls", ())
)
call = {"tool": "finish_task", "arguments": {"result": "Done."}}
print(
    json.dumps({"text": "", "calls": [call if is_done else {"tool": "run_command", "arguments": {"command": command}}]})
)
