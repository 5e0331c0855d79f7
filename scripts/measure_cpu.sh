#!/usr/bin/env bash
# Makes the CPU figures under docs/: the kernel table, the epoch beside PyTorch's, chapter 1's log, its profile and its figure.
#
#   scripts/measure_cpu.sh DATA [PYTHON]      DATA has CIFAR-10; PYTHON has torch and numpy (python3 if not given)
#
# Takes about five minutes. Leave the machine alone meanwhile; the tables are medians, but noise stays noise.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ $# -lt 1 || $# -gt 2 || $1 == -* ]]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0"
  exit 2
fi
data=$1
python=${2:-python3}
out=docs/measurements
program=build/benchmarks/bin/ch01_single_device
machine="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
today=$(date -u +%F)
commit=$(git rev-parse --short HEAD)
mkdir -p "$out" docs/figures

scripts/setup.sh --for-benchmarks
scripts/build.sh benchmarks

# page NAME TITLE: begins a page that says what made it.
page() {
  printf '# %s\n\nMade by `scripts/measure_cpu.sh` on %s: %s, commit %s.\n\n' "$2" "$today" "$machine" "$commit" \
    > "$out/$1.md"
}

echo "measuring: kernels"
page cpu_kernels "CPU kernels"
taskset -c 0 build/benchmarks/bin/cpu_kernels_benchmark --benchmark_format=json --benchmark_min_time=0.1 \
  --benchmark_repetitions=3 2> /dev/null | python3 tests/benchmarks/kernel_table.py >> "$out/cpu_kernels.md"

echo "measuring: epochs beside PyTorch"
page cpu_epoch "An epoch of convnet beside PyTorch"
{
  printf 'CIFAR-10, batch 64, Adam. PyTorch %s, eager. The two run in turn on the same cores.\n\n```text\n' \
    "$("$python" -c 'import torch; print(torch.__version__)')"
  for threads in 1 2; do
    "$python" tests/benchmarks/epoch_ratio.py --data "$data" --threads "$threads" --epochs 1 --program "$program"
  done
  printf '```\n'
} >> "$out/cpu_epoch.md"

echo "measuring: chapter 1 on CIFAR-10"
page ch01_cifar10 "Chapter 1 on CIFAR-10, both heads"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
for head in softmax logits; do
  {
    printf '## --head %s\n\n```text\n' "$head"
    "$program" --data "$data" --head "$head" --optimizer adam --lr 0.001 --batch-size 64 --epochs 10 \
      --out "$runs/$head" | grep '^Epoch:'
    printf '```\n\n'
  } >> "$out/ch01_cifar10.md"
done
{
  printf '## Where the time goes\n\n```text\n'
  taskset -c 0 "$program" --data "$data" --optimizer adam --epochs 1 --profile | sed -n '/^Where/,/^Epoch/p' | sed '$d'
  printf '```\n\n## Peak memory\n\n'
  # The largest resident set of the process, in kilobytes, as the kernel counts it.
  peak=$(python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)' \
    "$program" --data "$data" --optimizer adam --epochs 1)
  printf 'With all of CIFAR-10 loaded, one epoch: %s MiB for the whole process.\n' "$peak"
} >> "$out/ch01_cifar10.md"
build/benchmarks/bin/compare "$runs/softmax" "$runs/logits" --svg docs/figures/ch01_heads.svg > /dev/null

echo "measured: $out/cpu_kernels.md, $out/cpu_epoch.md, $out/ch01_cifar10.md, docs/figures/ch01_heads.svg"
