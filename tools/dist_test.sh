#!/usr/bin/env bash
# Test in N processes: tools/dist_test.sh CONFIG CHECKPOINT N [options of tools/test.py]
# Several machines: set NNODES, NODE_RANK and MASTER_ADDR on each. Without GPUs it runs on CPUs.
set -euo pipefail
TOOLS=$(dirname "$0")
if [ $# -lt 3 ]; then
    echo "usage: $0 CONFIG CHECKPOINT N [options of tools/test.py]" >&2
    exit 2
fi
CONFIG=$1
CHECKPOINT=$2
PROCESSES=$3

PYTHONPATH="$TOOLS/..${PYTHONPATH:+:$PYTHONPATH}" torchrun \
    --nnodes="${NNODES:-1}" \
    --node-rank="${NODE_RANK:-0}" \
    --nproc-per-node="$PROCESSES" \
    --master-addr="${MASTER_ADDR:-127.0.0.1}" \
    --master-port="${PORT:-29500}" \
    "$TOOLS/test.py" "$CONFIG" "$CHECKPOINT" --launcher pytorch "${@:4}"
