#!/usr/bin/env bash
# Builds and runs the tests. Those that need CIFAR-10 look for it at STAGECOACH_CIFAR10, and skip themselves without.
#
#   scripts/test.sh                   the quick tests
#   scripts/test.sh --all             the slow ones too, as with CI=true
#   scripts/test.sh -DNAME=VALUE …    with CMake variables
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests=release
[[ ${CI:-} != true ]] || tests=release-all
variables=()
for argument in "$@"; do
  case $argument in
    --all) tests=release-all ;;
    -D?*) variables+=("$argument") ;;
    *)
      echo "usage: scripts/test.sh [--all] [-DNAME=VALUE …]" >&2
      exit 2
      ;;
  esac
done

scripts/setup.sh
scripts/build.sh release "${variables[@]}"
exec ctest --preset "$tests" -j "$(nproc)"
