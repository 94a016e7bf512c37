#!/bin/bash
#SBATCH --job-name=hives --nodes=2 --ntasks-per-node=1 --cpus-per-task=8 --time=08:00:00
# A hive on each node of a Slurm job, linked through a PostgreSQL server that all nodes reach:
#     sbatch --export=ALL,EXCHANGE=postgresql://hives@db.example/hives,AGENTS=$HOME/agents examples/slurm.sh
# Tried with one node and a stand-in for srun; not on a cluster yet. AGENTS is a folder of agents' files, which each hive gets.
# The hives lie on the nodes' own disks; when the job's time is up each is unlinked, so that its tasks go on elsewhere
# (refused while it works on a task with a `once:` step).
# Give the tasks in a hive that stays, linked in the same way, with `where: any`.
#SBATCH --signal=TERM@120
set -eu
: "${EXCHANGE:?the URL of the PostgreSQL database, without a password}" "${AGENTS:?a folder of agents files}"

srun --kill-on-bad-exit=0 bash -euc '
  hive="${TMPDIR:-/var/tmp}/hive-$SLURM_JOB_ID"
  mkdir -p "$hive/agents"
  printf "workspace: %s-%s\n" "$(hostname -s | tr A-Z a-z)" "$SLURM_JOB_ID" > "$hive/hive.yaml"
  cp "$AGENTS"/*.yaml "$hive/agents/"
  hivemind --hive "$hive" link "$EXCHANGE"
  hivemind --hive "$hive" up &
  trap "kill -TERM $! || true" TERM
  wait $! || true
  wait $! || true
  hivemind --hive "$hive" unlink
'
