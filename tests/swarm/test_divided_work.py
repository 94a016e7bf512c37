"""A lead with three workers at the same time, and a reviewer that sends the work back once: real processes, minds by rule."""

from __future__ import annotations

import json
import sys

from tests.messages import calls_of

MIND = """
import json, os, sys, time
from pathlib import Path

role, name = sys.argv[1:]
WORKERS = ("ann", "ben", "cas")

def say(*calls):
    print(json.dumps({"calls": [{"tool": tool, "arguments": arguments} for tool, arguments in calls]}))

def mine():
    for path in sorted(Path("tasks/active").glob("*/task.json")):
        record = json.loads(path.read_text())
        if record["claim"]["agent"] == name:
            return path.parent.name, record

said = sys.stdin.read()
with open("requests", "a") as file:
    file.write(json.loads(said)["turn"]["about"]["kind"] + "\\n")
task, record = mine()
if role == "lead":
    made = record.get("kept", {}).get("subtasks", {})
    reviews = [one for call, ids in made.items() if call.startswith("review") for one in ids]
    ids = [one for call, ids in made.items() if not call.startswith("review") for one in ids]
    finish = ("finish_task", {"result": "A red boat." if "paint it red" in said else "A boat."})
    text = "---\\nsteps: [{title: Do it}]\\n---\\nDo it.\\n"
    if not ids:
        say(("delegate", {"tasks": [{"to": one, "text": text, "title": one} for one in WORKERS]}))
    elif reviews:
        say(finish)
    else:
        say(("wait_for", {"tasks": ids}), ("finish_step", {}), finish)
elif role == "worker":
    Path(f"at-work-{name}").touch()
    end = time.monotonic() + 60
    while not all(Path(f"at-work-{one}").exists() for one in WORKERS):  # nobody goes on alone
        if time.monotonic() > end:
            sys.exit("the others are not at work")
        time.sleep(0.01)
    others = [one for one in ("lead", *WORKERS) if one != name]
    notes = [("send_mail", {"to": others, "subject": "note", "body": f"{name} is at part {at}."}) for at in range(3)]
    say(*notes, ("finish_step", {}), ("finish_task", {"result": f"{name} did it."}))
else:
    say(("verdict", {"approved": False, "missing": ["paint it red"]} if ".review1." in task else {"approved": True}))
"""

BOAT = """---
assignee: lead
steps: [{title: Lead it}]
review: {by: critic, criteria: [it is red]}
---
Build a boat.
"""


def test_three_workers_side_by_side_and_a_reviewer_who_sends_the_work_back_once(hive):
    for path in (hive.root / "agents").glob("*.yaml"):
        path.unlink()
    (hive.root / "mind.py").write_text(MIND)
    for name, role in (("lead", "lead"), ("ann", "worker"), ("ben", "worker"), ("cas", "worker"), ("rex", "critic")):
        mind = {"command": [sys.executable, "mind.py", role, name]}
        (hive.root / "agents" / f"{name}.yaml").write_text(json.dumps({"role": role, "mind": mind}))
    hive.drop("boat.md", BOAT)
    hive.run("up", "--until-idle")
    result = hive.result("boat")
    assert "A red boat." in result
    assert "Approved by rex" in result
    assert "after 2 reviews" in result
    found = json.loads(hive.run("task", "list", "--json"))
    assert {one["state"] for one in found} == {"done"}
    assert sorted(str(one["parent"]) for one in found) == ["None", *["boat"] * 5]
    calls = calls_of(hive.root / "tasks/done/boat")
    [told] = [one["text"] for one in calls if one["tool"] == "wait_for"]
    assert all(f"{name} did it." in told for name in ("ann", "ben", "cas"))
    requests = (hive.root / "requests").read_text().split()
    notes = [one for name in ("lead", "ann", "ben", "cas") for one in (hive.root / "mailboxes" / name).glob("[cn]*/*")]
    assert len(notes) >= 3 * 3 * 3, "each worker told everybody else of each of its parts"
    assert requests.count("message") <= len(requests) / 10
    assert [one["result"]["missing"] for one in calls if "missing" in one["result"]] == [["paint it red"]]
