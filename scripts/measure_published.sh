#!/usr/bin/env bash
# Makes docs/measurements/published.md and its figure: published figures of pipelines beside what simulate says and what is
# measured here. The logs of docs/published/ are set beside ten epochs of CIFAR-10 that train as they did.
#
#   scripts/measure_published.sh DATA      DATA has CIFAR-10
#
# Takes about twelve minutes on two cores, and 6 GiB of memory. Leave the machine alone meanwhile; noise stays noise.
takes="1 1"
source "$(dirname "${BASH_SOURCE[0]}")/measuring.sh"
say "measuring: published figures"
python3 tests/benchmarks/published.py --data "$data" --programs "$programs" --svg docs/figures/published.svg > "$runs/page"
begin_page "Published figures beside ours"
cat "$runs/page"
say "written: $page"
