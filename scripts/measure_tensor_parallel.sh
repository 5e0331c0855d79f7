#!/usr/bin/env bash
# Makes docs/measurements/tensor_parallel.md and its figure: the three directions of chapter 8 over links of several
# bandwidths and in every order of ranks, and two ranks beside one and beside PyTorch's tensor parallelism.
#
#   scripts/measure_tensor_parallel.sh [PYTHON]      PYTHON has torch and safetensors (without it PyTorch is left out)
#
# Takes about ten minutes. Leave the machine alone meanwhile; the tables are medians, but noise stays noise.
takes="0 1"
source "$(dirname "${BASH_SOURCE[0]}")/measuring.sh"
python=${1:-}
begin_page "Tensor parallelism" tensor_parallel

say "measuring: eight ranks on the virtual clock"
printf '\n## Eight ranks, measured and predicted\n\n`tests/benchmarks/tensor_parallel_virtual.py`: `vit` (8 blocks 128 wide, '
printf '8 heads), batches of 128 images, virtual clock, links with a latency of 5 us. The pipeline has 8 micro-batches, and '
printf 'the mesh of all three directions (dp=2,pp=2,tp=2) has 4.\n\n'
python3 tests/benchmarks/tensor_parallel_virtual.py --programs "$programs" --svg docs/figures/ch08_links.svg
printf '\n![Milliseconds per step over the bandwidth of the links](../figures/ch08_links.svg)\n\n'
printf 'A prediction adds the computation that was measured in the same epochs to the formulas of the links. Ranks that compute '
printf 'a layer together exchange something after each part of it, and then all wait for the slowest: eight threads on two '
printf 'cores take different times for equal parts, and each part takes as long as its slowest rank. These waits count as '
printf 'computation (`Clock::waited_for_stragglers`). So for `tensor`, which has one stage and one copy of the model, little '
printf 'but the links remains to be predicted; with several stages and copies, the schedule and the reductions do too.\n'

say "measuring: two ranks on two cores"
printf '\n## Two ranks on two cores\n\n`tests/benchmarks/tensor_parallel_ratio.py`: `vit` (8 blocks 64 wide, 4 heads), batches '
printf 'of 64 images, SGD, wall clock.\n\n'
python3 tests/benchmarks/tensor_parallel_ratio.py --programs "$programs" ${python:+--torch "$python"}
say "written: $page"
