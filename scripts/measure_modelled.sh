#!/usr/bin/env bash
# Makes docs/measurements/modelled.md: modelled times beside those measured on an H200 and on this machine, and beside
# published ones.
#
#   scripts/measure_modelled.sh
#
# Takes some minutes to build for AVX2, the vectors for which costs are stated, and two to measure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh --for-benchmarks
scripts/build.sh benchmarks -DSTAGECOACH_ARCH=x86-64-v3 \
  --target modelled_steps calibrate ch01_single_device ch05_interleaved make_generated_data
python3 tests/benchmarks/modelled.py --programs build/benchmarks/bin > docs/measurements/modelled.md
echo "written: docs/measurements/modelled.md"
