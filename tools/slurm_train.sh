#!/usr/bin/env bash
# Train under slurm: GPUS=16 GPUS_PER_NODE=8 tools/slurm_train.sh PARTITION JOB_NAME CONFIG [options]
# SRUN_ARGS goes to srun, the options to tools/train.py.
set -euo pipefail
TOOLS=$(dirname "$0")
if [ $# -lt 3 ]; then
    echo "usage: $0 PARTITION JOB_NAME CONFIG [options of tools/train.py]" >&2
    exit 2
fi
PARTITION=$1
JOB_NAME=$2
CONFIG=$3
GPUS=${GPUS:-4}
GPUS_PER_NODE=${GPUS_PER_NODE:-4}

# shellcheck disable=SC2086  # SRUN_ARGS may hold several arguments
PYTHONPATH="$TOOLS/..${PYTHONPATH:+:$PYTHONPATH}" srun \
    --partition="$PARTITION" \
    --job-name="$JOB_NAME" \
    --gres="gpu:$GPUS_PER_NODE" \
    --ntasks="$GPUS" \
    --ntasks-per-node="$GPUS_PER_NODE" \
    --cpus-per-task="${CPUS_PER_TASK:-5}" \
    --kill-on-bad-exit=1 \
    ${SRUN_ARGS:-} \
    python -u "$TOOLS/train.py" "$CONFIG" --launcher slurm "${@:4}"
