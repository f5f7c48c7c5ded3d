#!/usr/bin/env bash
# Train in N processes: tools/dist_train.sh CONFIG N [options of tools/train.py]
# Several machines: set NNODES, NODE_RANK and MASTER_ADDR on each. Without GPUs it runs on CPUs.
set -euo pipefail
TOOLS=$(dirname "$0")
if [ $# -lt 2 ]; then
    echo "usage: $0 CONFIG N [options of tools/train.py]" >&2
    exit 2
fi
CONFIG=$1
PROCESSES=$2

PYTHONPATH="$TOOLS/..${PYTHONPATH:+:$PYTHONPATH}" torchrun \
    --nnodes="${NNODES:-1}" \
    --node-rank="${NODE_RANK:-0}" \
    --nproc-per-node="$PROCESSES" \
    --master-addr="${MASTER_ADDR:-127.0.0.1}" \
    --master-port="${PORT:-29500}" \
    "$TOOLS/train.py" "$CONFIG" --launcher pytorch "${@:3}"
