#!/usr/bin/env bash
# Checks and measures Stagecoach on the GPU of this machine, in at most eight minutes, and writes a page about it:
# tests, compute-sanitizer, chapter 1 on CIFAR-10 beside the CPU, the kernel tables, and epochs beside PyTorch's.
#
#   scripts/gpu_check.sh [--binaries DIR] [--data CIFAR_DIR] [--python PYTHON] [--out FILE]
#
#   --binaries DIR     take ready programs from here (or its bin/) instead of building the preset cuda
#   --data CIFAR_DIR   CIFAR-10 in its binary layout ($STAGECOACH_CIFAR10, or data, if not given)
#   --python PYTHON    has torch with CUDA, and numpy (python3 if not given)
#   --out FILE         the page (docs/measurements/gpu_check.md if not given)
#
# Exit status: 0 all passed; 1 a part failed; 2 no GPU, or wrong flags, and nothing was written; 3 nothing failed, but
# a part did not run or did not end. The page says which.
# shellcheck disable=SC2016  # backticks in single quotes are Markdown's
set -uo pipefail             # no -e: a part that fails must not stop the others

kMinutes=8
kGpuTests='*cuda*:*Cuda*'  # tests with a CUDA half have it in their names
# Each kernel beside its CPU twin: few tests, as a sanitizer makes them some hundred times slower.
kSanitizedTests='*Twins*cuda*:*Twins*Cuda*:*Cuda*Twins*:*CudaProducts*'
kSanitizerSeconds=45  # starting alone takes some

usage() {
  sed -n '2,13s/^# \{0,1\}//p' "$0"
  exit 2
}

absolute() { realpath --canonicalize-missing --no-symlinks -- "$1"; }

binaries=""
data=${STAGECOACH_CIFAR10:-}
python=python3
page=""
while [[ $# -gt 0 ]]; do
  [[ $# -ge 2 ]] || usage
  case $1 in
    --binaries) binaries=$(absolute "$2") ;;
    --data) data=$(absolute "$2") ;;
    --python) [[ $2 == */* ]] && python=$(absolute "$2") || python=$2 ;;
    --out) page=$(absolute "$2") ;;
    *) usage ;;
  esac
  shift 2
done
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
page=${page:-$PWD/docs/measurements/gpu_check.md}
data=${data:-$PWD/data}
export STAGECOACH_CIFAR10=$data  # for the tests

# "NVIDIA H200, 580.65.06, 9.0" of the first GPU.
if ! gpu=$(timeout 20 nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader 2> /dev/null) ||
  [[ -z $gpu ]]; then
  echo "gpu_check: there is no GPU here that nvidia-smi can see; nothing was checked" >&2
  exit 2
fi
IFS=',' read -r gpu_name gpu_driver gpu_capability <<< "${gpu%%$'\n'*}"
gpu_capability=${gpu_capability// /}

work=$(mktemp -d)
: > "$work/summary"
: > "$work/body"
failed=false
incomplete=false

# note PART RESULT: one line of the summary. Results that begin with FAILED or "not" decide the exit status.
note() {
  case $2 in
    FAILED*) failed=true ;;
    not*) incomplete=true ;;
  esac
  printf '| %s | %s | %d |\n' "$1" "$2" "$((SECONDS - part_start))" >> "$work/summary"
  echo "gpu_check: $1: $2"
}

# begin PART: the time of what follows is its.
begin() { part_start=$SECONDS; }

# write FORMAT …: into the body of the page, like printf.
# shellcheck disable=SC2059  # the format is the caller's
write() { printf "$@" >> "$work/body"; }

# write_words [LINES]: the last ones of the command that `limited` ran.
write_words() { write '```text\n%s\n```\n\n' "$(cat "$work/out" "$work/err" | tail -n "${1:-15}")"; }

seconds_left() { echo $((60 * kMinutes - 5 - SECONDS)); }

# limited SECONDS COMMAND…: what it says goes to $work/out and $work/err. 124: the time was over; 125: none was left.
limited() {
  local limit=$1 left status
  left=$(seconds_left)
  : > "$work/out"
  : > "$work/err"
  ((left > 5)) || return 125
  ((limit < left)) || limit=$left
  timeout --kill-after=3 "$limit" "${@:2}" > "$work/out" 2> "$work/err" < /dev/null &
  child=$!
  wait "$child"  # unlike a command in the foreground, a wait ends when the script is interrupted
  status=$?
  child=""
  ((status != 137)) || status=124
  return $status
}

# result STATUS WORDS: what the summary says of a command that `limited` ran.
result() {
  case $1 in
    0) echo "passed: $2" ;;
    124) echo "not finished in its time: $2" ;;
    125) echo "not run: the $kMinutes minutes were over" ;;
    *) echo "FAILED (exit $1): $2" ;;
  esac
}

# program NAME: its path, or nothing.
program() {
  local folder
  for folder in "$binaries/bin" "$binaries"; do
    if [[ -x $folder/$1 && ! -d $folder/$1 ]]; then
      echo "$folder/$1"
      return
    fi
  done
  return 1
}

build() {
  begin
  if [[ -n $binaries ]]; then
    note build "passed: ready programs of $binaries"
    return
  fi
  binaries=$PWD/build/cuda
  limited 60 scripts/setup.sh --for-benchmarks &&
    limited 240 scripts/build.sh cuda -DSTAGECOACH_BENCHMARKS=ON "-DCMAKE_CUDA_ARCHITECTURES=${gpu_capability/./}-real"
  local status=$?
  note build "$(result $status "preset cuda for compute capability $gpu_capability")"
  if [[ $status != 0 ]]; then
    write '## Build\n\n'
    write_words 30
    binaries=/nonexistent  # rather nothing than the programs of an older build
  fi
}

# count PATTERN: the number that gtest gives after it, or 0.
count() {
  local found
  found=$(sed -n "s/^\[ *$1 *\] \([0-9]*\) test.*/\1/p" "$work/out" | head -n 1)
  echo "${found:-0}"
}

# run_tests NAME: those of one test program that use the GPU.
run_tests() {
  begin
  local path status ran passed skipped
  if ! path=$(program "$1"); then
    note "$1" "not run: there is no such program"
    return
  fi
  limited 90 "$path" "--gtest_filter=$kGpuTests" --gtest_brief=1
  status=$?
  ran=$(count '=*') passed=$(count PASSED) skipped=$(count SKIPPED)
  if [[ $status == 0 && $((ran - skipped)) -le 0 ]]; then
    note "$1" "not run: of $ran tests for the GPU $skipped were skipped"
    return
  fi
  note "$1" "$(result $status "$passed passed, $((ran - passed - skipped)) failed, $skipped skipped")"
  if [[ $status != 0 ]]; then
    write '## Tests: the last words of %s\n\n' "$1"
    write_words 40
  fi
}

# sanitize TOOL NAME: the kernel tests of one test program.
sanitize() {
  begin
  local sanitizer path status tests
  if ! sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer); then
    note "compute-sanitizer, $1, $2" "not run: compute-sanitizer not found"
    return
  fi
  if ! path=$(program "$2"); then
    note "compute-sanitizer, $1, $2" "not run: there is no $2"
    return
  fi
  limited "$kSanitizerSeconds" "$sanitizer" --tool "$1" --error-exitcode 99 "$path" "--gtest_filter=$kSanitizedTests" \
    --gtest_brief=1
  status=$?
  tests=$(($(count '=*') - $(count SKIPPED)))
  if [[ $status == 0 && $tests == 0 ]]; then
    note "compute-sanitizer, $1, $2" "not run: no test ran of $kSanitizedTests"
    return
  fi
  note "compute-sanitizer, $1, $2" \
    "$(result $status "$tests tests; $(sed -n 's/^=* *\([A-Z]* SUMMARY: .*\)/\1/p' "$work/out" | tail -n 1)")"
  if [[ $status != 0 && $status != 125 ]]; then
    write '## compute-sanitizer, %s, %s: its last words\n\n' "$1" "$2"
    write_words 40
  fi
}

has_data() { compgen -G "$data/data_batch_*.bin" > /dev/null || [[ -d $data/cifar-10-batches-bin ]]; }

# Both devices' epochs beside each other. Files: the CPU's page, then lines of our run.
epoch_table() {
  awk '
    function field(name) {
      return match($0, name ": [0-9.]+") ? substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 2) : ""
    }
    function rate() { return match($0, /[0-9]+ img\/s/) ? substr($0, RSTART, RLENGTH - 6) : "" }
    /^## / { wanted = /--head softmax/ }
    !/^Epoch: / { next }
    FILENAME == ARGV[1] { if (wanted) cpu[field("Epoch")] = field("Loss") "|" field("test acc") "|" rate(); next }
    {
      split(cpu[field("Epoch")], on_cpu, "|")
      printf "| %s | %s | %s | %s | %s | %s | %s |\n", field("Epoch"), on_cpu[1], field("Loss"), on_cpu[2],
        field("test acc"), on_cpu[3], rate()
    }' "$1" "$2"
}

chapter1() {
  begin
  local part="chapter 1, ten epochs of CIFAR-10" path status epochs
  if ! path=$(program ch01_single_device); then
    note "$part" "not run: there is no ch01_single_device"
    return
  elif ! has_data; then
    note "$part" "not run: no CIFAR-10 in $data; give --data"
    return
  fi
  limited 100 "$path" --device cuda --data "$data" --head softmax --optimizer adam --lr 0.001 --batch-size 64 \
    --epochs 10
  status=$?
  grep '^Epoch:' "$work/out" > "$work/epochs"
  epochs=$(wc -l < "$work/epochs")
  note "$part" "$(result $status "$epochs epochs")"
  write '## Chapter 1 on CIFAR-10\n\n`--head softmax --optimizer adam --lr 0.001 --batch-size 64`. '
  write 'The CPU columns are those of `docs/measurements/ch01_cifar10.md`, from another machine.\n\n'
  write '| epoch | loss, CPU | loss, GPU | test acc, CPU | test acc, GPU | img/s, CPU | img/s, GPU |\n'
  write '|---:|---:|---:|---:|---:|---:|---:|\n%s\n\n' "$(epoch_table docs/measurements/ch01_cifar10.md "$work/epochs")"
  [[ $status == 0 ]] || write_words
}

# Where Python's packages keep cuBLAS and cuDNN, for the kernel table to compare with.
peer_libraries() {
  timeout 20 "$python" -c '
import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
places = spec.submodule_search_locations if spec else []
print(":".join(str(folder) for place in places for folder in pathlib.Path(place).glob("*/lib")))' 2> /dev/null
}

kernels() {
  begin
  local path status libraries places
  if ! path=$(program cuda_kernels_benchmark); then
    note "kernel table" "not run: there is no cuda_kernels_benchmark"
    return
  fi
  libraries=$(peer_libraries)
  places=${libraries:+$libraries:}${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
  limited 90 env "LD_LIBRARY_PATH=$places" "$path"
  status=$?
  note "kernel table" "$(result $status "$(grep -c '^| .* | [0-9]*% | ' "$work/out") rows")"
  write '## Kernels\n\n%s\n\n' "$(< "$work/out")"
  [[ $status == 0 ]] || write_words
}

# The four convolution kernels, for docs/convolution_kernel.md.
convolution_steps() {
  begin
  local part="convolution, step by step" path status
  if ! path=$(program convolution_steps_benchmark); then
    note "$part" "not run: there is no convolution_steps_benchmark"
    return
  fi
  limited 40 "$path"
  status=$?
  note "$part" "$(result $status "$(grep -c '^| .* | [0-9.]* | [0-9]* | ' "$work/out") rows")"
  write '## The convolution, step by step\n\n%s\n\n' "$(< "$work/out")"
  [[ $status == 0 ]] || write_words
}

# A few thousand pictures, for a model whose epochs are long: twenty steps of 512.
few_pictures() {
  local source=$data batch
  [[ ! -d $data/cifar-10-batches-bin ]] || source=$data/cifar-10-batches-bin
  mkdir -p "$work/few"
  for batch in data_batch_1 data_batch_2; do
    head -c $((3073 * 5120)) "$source/$batch.bin" > "$work/few/$batch.bin"
  done
  head -c $((3073 * 512)) "$source/test_batch.bin" > "$work/few/test_batch.bin"
}

# beside_torch PART DATA FLAGS…: our epochs and PyTorch's in turn.
beside_torch() {
  begin
  local part="beside PyTorch: $1" limit=90 left status ratio
  left=$(seconds_left)
  ((limit < left)) || limit=$left
  limited "$limit" "$python" tests/benchmarks/cuda_epoch_ratio.py --data "$2" --program "$ch01" \
    --limit $((limit - 8)) "${@:3}"
  status=$?
  ratio=$(sed -n 's/^Ratio to the fastest/ratio to the fastest/p' "$work/out")
  note "$part" "$(result $status "${ratio:-no ratio}")"
  write '### %s\n\n' "$1"
  if [[ $status == 0 ]]; then
    write '%s\n\n' "$(< "$work/out")"
  else
    write_words
  fi
}

all_beside_torch() {
  begin
  local reason="" ch01
  ch01=$(program ch01_single_device) || reason="there is no ch01_single_device"
  has_data || reason="no CIFAR-10 in $data; give --data"
  if [[ -z $reason ]] &&
    ! limited 60 "$python" -c 'import numpy, sys, torch; sys.exit(not torch.cuda.is_available())'; then
    reason="$python has no torch with CUDA"
    (($(seconds_left) > 5)) || reason="the $kMinutes minutes were over"
  fi
  if [[ -n $reason ]]; then
    note "beside PyTorch" "not run: $reason"
    return
  fi
  write '## Epochs beside PyTorch\n\nThe same model, pictures and optimizer. Ways of running PyTorch: '
  write '`tests/benchmarks/torch_cuda_epoch.py`.\n\n'
  few_pictures
  beside_torch "convnet, batch 64" "$data" --model convnet --batch-size 64
  beside_torch "convnet, batch 1024" "$data" --model convnet --batch-size 1024
  beside_torch "resnet18, batch 512, TF32" "$work/few" --model resnet18 --batch-size 512 --tf32
}

cuda_versions() {
  local driver toolkit
  driver=$(nvidia-smi 2> /dev/null | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p' | head -n 1)
  toolkit=$(PATH=$PATH:/usr/local/cuda/bin nvcc --version 2> /dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  echo "CUDA ${driver:-unknown} by the driver, nvcc ${toolkit:-not found}"
}

commit() {
  local name
  name=$(git rev-parse --short HEAD 2> /dev/null) || name="unknown"
  [[ -z $(git status --porcelain --untracked-files=no 2> /dev/null) ]] || name="$name with changes"
  echo "$name"
}

# Puts the page together, whatever was reached.
write_page() {
  mkdir -p "$(dirname "$page")"
  {
    printf '# On a GPU\n\nMade by `scripts/gpu_check.sh` on %s: %s, compute capability %s, driver %s; ' \
      "$(date -u +%F)" "$gpu_name" "$gpu_capability" "${gpu_driver# }"
    printf '%s; commit %s.\n\n' "$(cuda_versions)" "$(commit)"
    printf '## What ran\n\n| part | result | seconds |\n|---|---|---:|\n'
    cat "$work/summary"
    printf '\n'
    cat "$work/body"
  } | cat -s > "$page"
  rm -rf "$work"
  echo "gpu_check: $page"
}
trap write_page EXIT
child=""
trap '[[ -z $child ]] || kill "$child"; note "the rest" "not run: interrupted"; exit 130' INT TERM

build
for name in test_core test_cuda test_nn test_datasets test_parallel test_chapters; do
  run_tests "$name"
done
chapter1
kernels
convolution_steps
all_beside_torch
for tool in memcheck racecheck initcheck; do  # last: what they slow down must not cost the measurements their time
  for name in test_cuda test_core; do
    sanitize "$tool" "$name"
  done
done
! $failed || exit 1
! $incomplete || exit 3
