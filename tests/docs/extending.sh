#!/usr/bin/env bash
# Applies the patches of docs/extending.md to a copy of the last commit, builds what they change, and tests it, the CUDA
# backend emulated on the CPU. They change headers that nearly all sources include, and the tests are short: so it is
# built in batches and not optimised.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

patches=$PWD/docs/extending
copy=build/extending
rm -rf "$copy/source"
mkdir -p "$copy/source"
git archive HEAD | tar -x -C "$copy/source"
export GIT_CEILING_DIRECTORIES=$PWD/$copy  # the copy is no part of this repository
cd "$copy/source"
for patch in "$patches"/*.patch; do
  git apply --check "$patch"  # each by itself
done
git apply "$patches"/*.patch

scripts/build.sh release --target test_extending ch10_linear_probe -DSTAGECOACH_CUDA=EMULATED \
  -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" ${CI:+-DSTAGECOACH_WERROR=ON}
programs=build/release/bin
$programs/test_extending --gtest_brief=1 --gtest_filter='*LeakyRelu*'
$programs/test_extending --gtest_brief=1 --gtest_filter='ScheduleKinds*'
$programs/test_extending --gtest_brief=1 --gtest_filter='Models*'
$programs/ch10_linear_probe --smoke --model perceptron
