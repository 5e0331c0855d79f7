# shellcheck shell=bash
# The steps that .ci/run and scripts/nightly.sh are made of: one function per step, and what runs, counts and times them.
# Both source this file from the project's root.
#
# A step runs in a shell of its own, which ends at the first command that fails. build/checks/STEP.log has what it
# printed, and build/checks/STEP.result: SECONDS PASSED FAILED SKIPPED, of its tests.

export CI=true
checks=build/checks
mkdir -p "$checks"

# Tests that need CIFAR-10 find it here; the step set_up makes it where it can.
if [[ -z ${STAGECOACH_CIFAR10:-} && -e ../shared/data/make_cifar10.py ]]; then
  export STAGECOACH_CIFAR10=$PWD/build/cifar10
fi

# -- Running steps

# run_step NAME: runs that step. Returns its exit status.
run_step() {
  local begin=$SECONDS status=0
  echo "== $1"
  rm -f "$checks/$1".*
  bash -euo pipefail -c "source scripts/checks.sh; $1" < /dev/null 2>&1 | tee "$checks/$1.log" || status=$?
  echo "$((SECONDS - begin)) $(count_tests "$1")" > "$checks/$1.result"
  if [[ $status == 0 ]]; then
    echo "== $1: passed, $((SECONDS - begin)) s"
  else
    echo "== $1: FAILED (exit $status), $((SECONDS - begin)) s"
  fi
  return "$status"
}

# count_tests STEP: prints how many tests passed, failed and were skipped. With sanitizers several tests share a process,
# which CTest counts as one test; the processes say themselves how many there were.
count_tests() {
  local log=$checks/$1.log ended='s/.*tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\1 \2/p'
  local failed=0 passed=0 skipped run_failed run_total processes inside
  while read -r run_failed run_total; do
    failed=$((failed + run_failed))
    passed=$((passed + run_total - run_failed))
  done < <(sed -n "$ended" "$log")
  skipped=$(grep -c '^\s*[0-9]* - .*(Skipped)$' "$log" || true)
  processes=$(grep -cE 'Test +#[0-9]+: test_[a-z_]+/[0-9]+ .* Passed' "$log" || true)
  touch "$checks/$1.shares"
  inside=$(awk '/PASSED/ { passed += $4 } /SKIPPED/ { skipped += $4 } END { print passed + 0, skipped + 0 }' "$checks/$1.shares")
  echo "$((passed - skipped - processes + ${inside% *})) $failed $((skipped + ${inside#* }))"
}

# sanitized STEP PRESET [ARGUMENT…]: runs tests of a build with sanitizers.
# Sanitizers take several times as long, and find mistakes in code, not in numbers. So grids of sizes and long trainings
# run in a smaller form (unless_sanitized in tests/support/sanitized.h), as every size takes the same paths.
sanitized() {
  local fixed_layout=()
  # Where memory is laid out at random over a wide range, the sanitizers of older compilers cannot start.
  if setarch --addr-no-randomize true 2> /dev/null; then
    fixed_layout=(setarch --addr-no-randomize)
  fi
  "${fixed_layout[@]}" ctest --preset "$2" -j "$(nproc)" "${@:3}"
  grep -E '^\[ +(PASSED|SKIPPED) +\] [0-9]+ test' "build/$2/Testing/Temporary/LastTest.log" >> "$checks/$1.shares" || true
}

# -- Steps of both

set_up() {
  scripts/setup.sh --for-ci
  if [[ ${STAGECOACH_CIFAR10:-} == "$PWD/build/cifar10" && ! -e $STAGECOACH_CIFAR10/cifar-10-batches-bin/data_batch_1.bin ]]; then
    echo "making CIFAR-10 in build/cifar10"
    /usr/bin/python3 ../shared/data/make_cifar10.py build/cifar10
  fi
}

formatting() {
  git ls-files -z -- '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 -n 50 -P "$(nproc)" clang-format-14 --dry-run -Werror
}

build_without_warnings() { scripts/build.sh release -DSTAGECOACH_WERROR=ON; }

documentation() { scripts/build.sh docs; }

one_definition() { tests/structure/one_definition.sh; }

# -- Steps of .ci/run

quick_tests() { ctest --preset release -j "$(nproc)"; }

# What the pages quote, trained on few images.
quoted_output_in_short() { ctest --preset release-quoted -j "$(nproc)"; }

# The floors below parallel/ with the address and undefined-behaviour sanitizers: each kernel for GPUs, emulated, beside
# its twin for CPUs, the models, and the readers of data.
emulated_kernels() {
  scripts/build.sh emulated --target test_core test_cuda test_nn test_datasets -DSTAGECOACH_WERROR=ON
  sanitized emulated_kernels emulated --tests-regex '^test_(core|cuda|nn|datasets)/'
}

# All that lets threads meet: communicators, executor, reducer, asynchronous devices, loaders. By a second compiler, and
# with what other systems than Linux get.
races() {
  scripts/build.sh tsan --target test_core test_parallel test_sharded test_datasets -DCMAKE_CXX_COMPILER=clang++-19 \
    -DSTAGECOACH_SYSTEM=posix -DSTAGECOACH_WERROR=ON
  sanitized races tsan --tests-regex '^test_(core|parallel|sharded|datasets)/'
}

# -- Steps of scripts/nightly.sh

set_up_for_all() {
  set_up
  scripts/setup.sh --for-nightly
}

all_tests() {
  build_without_warnings
  ctest --preset release-all -j "$(nproc)"
}

# Those of docs/extending.md.
walk_throughs() { tests/docs/extending.sh; }

# Each source by itself, so that one that leans on the includes of others is found.
levels_of_processors() {
  scripts/build.sh levels --target programs test_levels test_core test_nn test_datasets test_parallel test_chapters \
    test_chapters_slow test_structure -DSTAGECOACH_BATCH=1 -DSTAGECOACH_WERROR=ON
  ctest --preset levels -j "$(nproc)"
}

# As a package, and as a part of another project.
package() { tests/package/package_test.sh; }

# Compiled and linked for all GPUs of a release; no GPU is needed.
cuda_architectures() { scripts/build.sh cuda --target programs test_core test_cuda -DSTAGECOACH_WERROR=ON; }

# The same by the oldest nvcc that is supported.
oldest_cuda() { tests/structure/oldest_cuda.sh; }

sanitized_build() { scripts/build.sh emulated -DSTAGECOACH_WERROR=ON; }

# 20,000 for each reader.
mutated_inputs() {
  sanitized_build
  sanitized mutated_inputs emulated --tests-regex '^Fuzz'
}

sanitized_tests() {
  sanitized_build
  sanitized sanitized_tests emulated --exclude-regex '^Fuzz'
}

all_races() {
  scripts/build.sh tsan -DCMAKE_CXX_COMPILER=clang++-19 -DSTAGECOACH_SYSTEM=posix -DSTAGECOACH_WERROR=ON
  sanitized all_races tsan
}

# Runs that are ended at random moments go on and end with the bytes of an untouched one.
kills() {
  build_without_warnings
  python3 tests/chapters/kills.py --bin build/release/bin --mpirun mpirun --count 200
}

# Random settings for every program are honoured, or refused as they should be.
random_settings() {
  build_without_warnings
  python3 tests/fuzz/flag_settings.py --bin build/release/bin --count 2000
}

# Another processor, emulated. Tests of resnet18 with several devices would take hours there.
arm64() {
  scripts/build.sh arm64 --target programs test_core test_nn test_parallel -DSTAGECOACH_WERROR=ON
  local floor shard processes=()
  for floor in core nn parallel; do
    for ((shard = 0; shard < $(nproc); ++shard)); do
      GTEST_TOTAL_SHARDS=$(nproc) GTEST_SHARD_INDEX=$shard qemu-aarch64 "build/arm64/bin/test_$floor" --gtest_brief=1 \
        --gtest_filter='-*Resnet18*' &
      processes+=($!)
    done
    for shard in "${processes[@]}"; do wait "$shard"; done
    processes=()
  done
}

# Both commands of the README in systems where nothing is installed, and the packages in the oldest of them.
fresh_debian_12() { scripts/measure_platforms.sh debian-12; }
fresh_debian_13() { scripts/measure_platforms.sh --readme debian-13; }
fresh_ubuntu_24_04() { scripts/measure_platforms.sh --readme ubuntu-24.04; }
