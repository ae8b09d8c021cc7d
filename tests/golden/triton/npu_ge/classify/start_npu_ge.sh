#!/bin/sh
# Starts Triton for the pipeline 'classify'. Made by gepipe triton export.
# For CANN's backend npu_ge (v2.3.0); not run on a card.
#
#   sh start_npu_ge.sh [option of tritonserver ...]
#
# GEPIPE_PYTHON  folder of a virtual environment with gepipe, of the Python that the stub of
#                Triton's Python backend was built for: 3.10 in the images of npu_ge.
# GE_OPTIONS     options of GE, such as 'ge.aicoreNum=12|10', separated by spaces. They are read
#                from the command line only. GE_NPU_CONFIG, where it is set, replaces all of them.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
models=$(dirname -- "$here")
if [ -n "${GEPIPE_PYTHON:-}" ]; then
    PATH="$GEPIPE_PYTHON/bin:$PATH"
    export PATH
fi
options=
for option in ${GE_OPTIONS:-}; do
    options="$options --backend-config=npu_ge,$option"
done
shm=$(df -Pk /dev/shm | awk 'NR == 2 {print $2}')
if [ "$shm" -lt 40635 ]; then
    echo "/dev/shm has $shm KiB; expected at least 40635: docker run --shm-size=40635k" >&2
    exit 1
fi
# GE writes folders where it runs, and the server would take them for models.
scratch=$(mktemp -d)
cd "$scratch"
# shellcheck disable=SC2086
exec tritonserver --model-repository="$models" --http-address=127.0.0.1 \
    --grpc-address=127.0.0.1 --metrics-address=127.0.0.1 --disable-auto-complete-config \
    $options "$@"
