#!/usr/bin/env bash
# Checks and measures Stagecoach on the GPU of this machine, in at most eight minutes, and writes a page about it:
# tests, compute-sanitizer, chapter 1 on CIFAR-10 beside the CPU, the kernel tables, and epochs beside PyTorch's.
#
#   scripts/gpu_check.sh [--binaries DIR] [--data CIFAR_DIR] [--python PYTHON] [--out FILE]
#
#   --binaries DIR     take ready programs from here (or its bin/) instead of building the preset cuda
#   --data CIFAR_DIR   CIFAR-10 in its binary layout ($STAGECOACH_CIFAR10, or data, if not given); without it generated
#                      pictures are taken, for the speed
#   --python PYTHON    has torch with CUDA, and numpy (python3 if not given)
#   --out FILE         the page (docs/measurements/gpu_check.md if not given); what the parts said lies beside it in a
#                      folder .logs
#
# Exit status: 0 all passed; 1 a part failed; 2 no GPU, or wrong flags, and nothing was written; 3 nothing failed, but
# a part did not run or did not end; 130 interrupted. The page says which.
# shellcheck disable=SC2016  # backticks in single quotes are Markdown's
set -uo pipefail             # no -e: a part that fails must not stop the others

kMinutes=8
kGpuTests='*cuda*:*Cuda*'  # tests with a CUDA half have it in their names
# Each kernel beside its CPU twin: few tests, as a sanitizer makes them some hundred times slower.
kSanitizedTests='cuda/*Twins*:*CudaProducts*:*CudaTiles*'
kTestSeconds=120
kSanitizerSeconds=80  # for all of them together, as they run side by side; starting alone takes some

usage() {
  sed -n '2,15s/^# \{0,1\}//p' "$0"
  exit 2
}

absolute() { realpath --canonicalize-missing --no-symlinks -- "$1"; }

binaries=""
data=${STAGECOACH_CIFAR10:+$(absolute "$STAGECOACH_CIFAR10")}
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
has_data() { compgen -G "$data/data_batch_*.bin" > /dev/null || [[ -d $data/cifar-10-batches-bin ]]; }
! has_data || export STAGECOACH_CIFAR10=$data  # for the tests

# "NVIDIA H200, 580.65.06, 9.0" of the first GPU.
if ! gpu=$(timeout 20 nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader 2> /dev/null) ||
  [[ -z $gpu ]]; then
  echo "gpu_check: there is no GPU here that nvidia-smi can see; nothing was checked" >&2
  exit 2
fi
IFS=',' read -r gpu_name gpu_driver gpu_capability <<< "${gpu%%$'\n'*}"
gpu_capability=${gpu_capability// /}
cuda_driver=$(timeout 20 nvidia-smi 2> /dev/null | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p' | head -n 1)
toolkit=$(PATH=$PATH:/usr/local/cuda/bin nvcc --version 2> /dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
cuda_versions="CUDA ${cuda_driver:-unknown} by the driver, nvcc ${toolkit:-not found}"

work=$(mktemp -d)
logs=${page%.md}.logs
rm -rf "$logs"
mkdir -p "$logs" || exit 1
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

# write_words NAME [LINES]: the first and the last ones of what NAME said, without the tests that passed. The first
# failure is often the one that counts.
write_words() {
  local lines=${2:-15}
  write '```text\n%s\n```\n\n' "$(cat "$logs/$1.out" "$logs/$1.err" | grep -v '^\[\( RUN \|       OK \|-----\)' |
    awk -v most="$lines" '{ line[NR] = $0 } END {
      for (i = 1; i <= NR; i++) if (i <= most || i > NR - most) print line[i]; else if (i == most + 1) print "…" }')"
}

seconds_left() { echo $((60 * kMinutes - 5 - SECONDS)); }

# start NAME SECONDS COMMAND…: runs it beside the script; what it says goes to NAME.out and NAME.err of the logs.
declare -A child kill_time
start() {
  local limit=$2 left
  left=$(seconds_left)
  : > "$logs/$1.out"
  : > "$logs/$1.err"
  ((left > 5)) || return 0
  ((limit < left)) || limit=$left
  timeout --kill-after=3 "$limit" "${@:3}" > "$logs/$1.out" 2> "$logs/$1.err" < /dev/null &
  child[$1]=$!
  kill_time[$1]=$((SECONDS + limit))
}

# finish NAME: waits for it. 124: its time was over; 125: none was left.
finish() {
  local status
  [[ -n ${child[$1]:-} ]] || return 125
  wait "${child[$1]}"  # unlike a command in the foreground, a wait ends when the script is interrupted
  status=$?
  unset "child[$1]"
  ((status != 137 || SECONDS < kill_time[$1])) || status=124  # else it was killed for its memory
  return $status
}

# limited NAME SECONDS COMMAND…: both at once.
limited() {
  start "$@"
  finish "$1"
}

# result STATUS WORDS: what the summary says of a command that `finish` waited for.
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
  if [[ -z $binaries ]]; then
    binaries=$PWD/build/cuda
    limited build 300 bash -c 'scripts/setup.sh --for-benchmarks &&
      scripts/build.sh cuda --target gpu_check -DSTAGECOACH_BENCHMARKS=ON "-DCMAKE_CUDA_ARCHITECTURES=$1-real"' \
      build "${gpu_capability/./}"
    local status=$?
    note build "$(result $status "preset cuda for compute capability $gpu_capability")"
    if [[ $status != 0 ]]; then
      write '## Build\n\n'
      write_words build 30
      binaries=/nonexistent  # rather nothing than the programs of an older build
    fi
    return
  fi
  local name path missing=""
  for name in ch01_single_device "${test_programs[@]}"; do
    if path=$(program "$name"); then
      missing+=$(ldd "$path" 2>&1 | sed -n "s/^\s*\(\S*\) => not found.*/ \1/p; s/.*version .\(GLIBC\S*\). not found.*/ \1/p" |
        sort -u | tr -d '\n')
    fi
  done
  if [[ -n $missing ]]; then
    note build "FAILED: programs of $binaries need libraries that are not here:$missing; the preset portable has them in"
  else
    note build "passed: ready programs of $binaries"
  fi
}

# count PATTERN NAME: the number that gtest gives after it, or 0.
count() {
  local found
  found=$(sed -n "s/^\[ *$1 *\] \([0-9]*\) test.*/\1/p" "$logs/$2.out" | head -n 1)
  echo "${found:-0}"
}

# Runs the first test that failed in NAME's program, or in which the program ended, once more, alone: so it is told from
# those that an earlier failure took along; and with each kernel waited for: so the error names the kernel.
rerun_first_failure() {
  local first way
  first=$(sed -n 's/^\[ *FAILED *\] \([^ ,]*\).*/\1/p' "$logs/$1.out" | head -n 1)
  first=${first:-$(sed -n 's/^\[ RUN *\] \(\S*\).*/\1/p' "$logs/$1.out" | tail -n 1)}
  [[ -n $first ]] || return
  for way in CUDA_LAUNCH_BLOCKING=1 STAGECOACH_NO_OVERLAP=1; do
    limited "$1-again" 30 env "$way" "$2" "--gtest_filter=$first"
    write '`%s` alone, with `%s`: exit status %d\n\n' "$first" "$way" $?
    write_words "$1-again"
  done
}

# Tests of all programs, side by side: they ask for little of the GPU.
tests() {
  local name path status ran passed skipped
  begin
  for name in "${test_programs[@]}"; do
    if path=$(program "$name"); then
      start "$name" "$kTestSeconds" "$path" "--gtest_filter=$kGpuTests"
    fi
  done
  for name in "${test_programs[@]}"; do
    if ! path=$(program "$name"); then
      note "$name" "not run: there is no such program"
      continue
    fi
    finish "$name"
    status=$?
    ran=$(count '=*' "$name") passed=$(count PASSED "$name") skipped=$(count SKIPPED "$name")
    if [[ $status == 0 && $((ran - skipped)) -le 0 ]]; then
      if [[ $name == test_parallel ]]; then
        note "$name" "skipped: its tests for the GPU are those of NCCL, which is not built in or wants more GPUs"
      else
        note "$name" "not run: of $ran tests for the GPU $skipped were skipped"
      fi
      continue
    fi
    note "$name" "$(result $status "$passed passed, $((ran - passed - skipped)) failed, $skipped skipped")"
    if [[ $status != 0 ]]; then
      write '## Tests: the words of %s\n\n' "$name"
      write_words "$name" 40
      rerun_first_failure "$name" "$path"
    fi
  done
}

# The kernel tests under the tools of compute-sanitizer, side by side.
sanitize() {
  local sanitizer tool name part path status tests
  begin
  if ! sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer); then
    note "compute-sanitizer" "not run: compute-sanitizer not found"
    return
  fi
  for tool in memcheck racecheck initcheck; do
    for name in test_cuda test_core; do
      if path=$(program "$name"); then
        start "$tool-$name" "$kSanitizerSeconds" "$sanitizer" --tool "$tool" --error-exitcode 99 "$path" \
          "--gtest_filter=$kSanitizedTests"
      fi
    done
  done
  for tool in memcheck racecheck initcheck; do
    for name in test_cuda test_core; do
      part="compute-sanitizer, $tool, $name"
      if ! path=$(program "$name"); then
        note "$part" "not run: there is no $name"
        continue
      fi
      finish "$tool-$name"
      status=$?
      tests=$(($(count '=*' "$tool-$name") - $(count SKIPPED "$tool-$name")))
      if [[ $status == 0 && $tests -le 0 ]]; then
        note "$part" "not run: no test ran of $kSanitizedTests"
        continue
      fi
      note "$part" \
        "$(result $status "$tests tests; $(sed -n 's/^=* *\([A-Z]* SUMMARY: .*\)/\1/p' "$logs/$tool-$name.out" | tail -n 1)")"
      if [[ $status != 0 && $status != 125 ]]; then
        write '## %s: its words\n\n' "$part"
        write_words "$tool-$name" 40
      fi
    done
  done
}

# Pictures to measure with: CIFAR-10, or as many generated ones, whose losses say nothing.
choose_data() {
  local path
  data_name="CIFAR-10"
  ! has_data || return
  if path=$(program make_generated_data) && begin &&
    limited data 60 "$path" "$work/generated" --train 50000 --test 10000; then
    data_name="generated pictures"
    data=$work/generated
    note "CIFAR-10" "not here: measured on generated pictures; give --data"
  fi
}

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
  local part="chapter 1, ten epochs of $data_name" path status epochs
  if ! path=$(program ch01_single_device); then
    note "$part" "not run: there is no ch01_single_device"
    return
  elif ! has_data; then
    note "$part" "not run: no CIFAR-10 in $data; give --data"
    return
  fi
  limited chapter1 100 "$path" --device cuda --data "$data" --head softmax --optimizer adam --lr 0.001 --batch-size 64 \
    --epochs 10
  status=$?
  grep '^Epoch:' "$logs/chapter1.out" > "$work/epochs"
  epochs=$(wc -l < "$work/epochs")
  note "$part" "$(result $status "$epochs epochs")"
  write '## Chapter 1 on %s\n\n' "$data_name"
  write '`--head softmax --optimizer adam --lr 0.001 --batch-size 64`. '
  write 'The CPU columns are those of `docs/measurements/ch01_cifar10.md`, from another machine.\n\n'
  write '| epoch | loss, CPU | loss, GPU | test acc, CPU | test acc, GPU | img/s, CPU | img/s, GPU |\n'
  write '|---:|---:|---:|---:|---:|---:|---:|\n%s\n\n' "$(epoch_table docs/measurements/ch01_cifar10.md "$work/epochs")"
  [[ $status == 0 ]] || write_words chapter1
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
  limited kernels 90 env "LD_LIBRARY_PATH=$places" "$path"
  status=$?
  note "kernel table" "$(result $status "$(grep -c '^| .* | [0-9]*% | ' "$logs/kernels.out") rows")"
  write '## Kernels\n\n%s\n\n' "$(< "$logs/kernels.out")"
  [[ $status == 0 ]] || write_words kernels
}

# The four convolution kernels, for docs/convolution_kernel.md.
convolution_steps() {
  begin
  local part="convolution, step by step" path status
  if ! path=$(program convolution_steps_benchmark); then
    note "$part" "not run: there is no convolution_steps_benchmark"
    return
  fi
  limited convolution 40 "$path"
  status=$?
  note "$part" "$(result $status "$(grep -c '^| .* | [0-9.]* | [0-9]* | ' "$logs/convolution.out") rows")"
  write '## The convolution, step by step\n\n%s\n\n' "$(< "$logs/convolution.out")"
  [[ $status == 0 ]] || write_words convolution
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

# beside_torch NAME PART DATA FLAGS…: our epochs and PyTorch's in turn.
beside_torch() {
  begin
  local part="beside PyTorch: $2" limit=75 left status ratio
  left=$(($(seconds_left) - kSanitizerSeconds))
  ((limit < left)) || limit=$left
  if ((limit < 40)); then  # not enough to compile anything
    note "$part" "not run: the time was over"
    return
  fi
  limited "$1" "$limit" "$python" tests/benchmarks/cuda_epoch_ratio.py --data "$3" --program "$ch01" \
    --limit $((limit - 8)) "${@:4}"
  status=$?
  ratio=$(sed -n 's/^Ratio to the fastest/ratio to the fastest/p' "$logs/$1.out" | tail -n 1)
  note "$part" "$(result $status "${ratio:-no ratio}")"
  write '### %s\n\n' "$2"
  if [[ $status == 0 ]]; then
    write '%s\n\n' "$(< "$logs/$1.out")"
  else
    write_words "$1"
  fi
}

all_beside_torch() {
  begin
  local reason="" ch01
  ch01=$(program ch01_single_device) || reason="there is no ch01_single_device"
  has_data || reason="no CIFAR-10 in $data; give --data"
  if [[ -z $reason ]]; then
    limited torch 120 "$python" -c 'import numpy, sys, torch; sys.exit(not torch.cuda.is_available())'
    case $? in
      0) ;;
      124) reason="$python had not loaded torch when its time was over" ;;
      125) reason="the $kMinutes minutes were over" ;;
      *) reason="$python has no torch with CUDA, and numpy" ;;
    esac
  fi
  if [[ -n $reason ]]; then
    note "beside PyTorch" "not run: $reason"
    return
  fi
  write '## Epochs beside PyTorch\n\nThe same model, pictures (%s) and optimizer. Ways of running PyTorch: ' "$data_name"
  write '`tests/benchmarks/torch_cuda_epoch.py`.\n\n'
  few_pictures
  beside_torch torch-64 "convnet, batch 64" "$data" --model convnet --batch-size 64
  beside_torch torch-1024 "convnet, batch 1024" "$data" --model convnet --batch-size 1024
  beside_torch torch-resnet18 "resnet18, batch 512, TF32" "$work/few" --model resnet18 --batch-size 512 --tf32
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
    printf '%s; commit %s.\n\n' "$cuda_versions" "$(commit)"
    printf '## What ran\n\n| part | result | seconds |\n|---|---|---:|\n'
    cat "$work/summary"
    printf '\n'
    cat "$work/body"
  } | cat -s > "$page"
  rm -rf "$work"
  echo "gpu_check: $page; all that was said: $logs"
}
trap write_page EXIT
trap 'kill "${child[@]}" 2> /dev/null; note "the rest" "not run: interrupted"; exit 130' INT TERM

test_programs=(test_core test_cuda test_nn test_datasets test_parallel test_chapters)
build
tests
choose_data
chapter1
kernels
convolution_steps
all_beside_torch
sanitize  # last: what it slows down must not cost the measurements their time
! $failed || exit 1
! $incomplete || exit 3
