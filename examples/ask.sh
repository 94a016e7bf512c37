#!/bin/sh
# Ask the swarm of this repository's own hive some questions about itself, watch it work, print the answers.
# `make run` calls this; QUESTIONS is a folder of task files.
set -eu
cd "$(dirname "$0")/.."
QUESTIONS=${QUESTIONS:-examples/questions}

echo "Dropping $(ls "$QUESTIONS" | wc -l) tasks into tasks/inbox/ of $PWD"
ids=
for file in "$QUESTIONS"/*; do
  ids="$ids $(hivemind task add --file "$file")"
done
status=0
hivemind up --until-idle || status=$?
hivemind task show $ids
exit $status
