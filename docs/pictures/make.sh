#!/bin/sh
# Make the pictures of the manual (knowledge/manual/pictures/) anew, from a real run: a hive of its own, three agents, seven tasks, no model, no network.
# Needs chromium, node, and a folder $HIVEMIND_BROWSER with playwright-core in node_modules (.ci/run makes one).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
hivemind=${HIVEMIND:-$here/../../.venv/bin/hivemind}
place=$(mktemp -d)
trap 'kill $page $swarm 2>/dev/null || true; rm -rf "$place"' EXIT
page= swarm=
"$hivemind" init "$place/harbour" >/dev/null
cp -r "$here/../../knowledge/manual" "$place/harbour/knowledge/handbook"
cd "$place/harbour"
for task in "What is a lease?" "Why two agents?" "What happens when an agent dies?" "How large is the manual?"; do
  "$hivemind" task add "$task" >/dev/null
done
cat >tasks/inbox/paint.md <<'TASK'
---
title: Decide how the boats are painted
steps:
  - title: Ask which colour
    wait: {human: "Which colour should the boats have, **red** or blue?"}
---
Decide how the boats are painted.
TASK
printf -- '---\ntitle: Count the lines of the survey\nsteps:\n  - run: "wc -l survey.txt"\n---\nCount it.\n' >tasks/inbox/count.md
printf -- '---\ntitle: Plan the harbour\n---\n1. What is a lane?\n2. How does mail work here?\n' >tasks/inbox/plan.md
"$hivemind" up >/dev/null 2>&1 &
swarm=$!
"$hivemind" web --port 0 >"$place/link" &
page=$!
while ! test -s "$place/link" || ! test -f tasks/done/plan/result.md; do sleep 0.5; done
node "$here/make.mjs" "$(cat "$place/link")" "$HIVEMIND_BROWSER" "$here/../../knowledge/manual/pictures"
