#!/usr/bin/env bash
# Installs Stagecoach, packs it, and uses it from other projects in the ways that docs/library.md names. Each of them
# builds and runs the programs of docs/examples. The preset package is built for this processor, whatever it says: then
# ccache has most objects from the preset release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build=build/package_test
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
installed=$scratch/installed
unpacked="$scratch/moved elsewhere"
# For the projects of others, which do not have ccache set up by cmake/Compiler.cmake.
if command -v ccache > /dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD
fi

fail() {
  echo "package test: $*" >&2
  exit 1
}

# quietly COMMAND…: shows what it printed only if it fails.
quietly() {
  "$@" > "$scratch/log" 2>&1 || { tail -n 40 "$scratch/log" >&2; fail "failed: $*"; }
}

# trains PROGRAM: it learns to tell the quadrants of 256 points.
trains() {
  local last
  last=$("$1" | tail -n 1)
  [[ $last =~ ^correct:\ 2[45][0-9]\ of\ 256$ ]] || fail "$1: expected 'correct: 240 of 256' or better, got '$last'"
}

# builds_outside PREFIX NAME: the example's project, with the Stagecoach and the examples that are installed there.
builds_outside() {
  quietly cmake -G Ninja -S "$1/share/stagecoach/examples/outside" -B "$scratch/$2" "-DCMAKE_PREFIX_PATH=$1" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
  grep --quiet --fixed-strings "Stagecoach_DIR:PATH=$1/" "$scratch/$2/CMakeCache.txt" ||
    fail "find_package found another Stagecoach than that in $1"
  quietly cmake --build "$scratch/$2"
  has_no_flags_of_ours "$scratch/$2"
  trains "$scratch/$2/own_model"
  quietly tests/package/killed_run.py "$scratch/$2/train_your_own"
}

# has_no_flags_of_ours BUILD: the user's source is compiled as C++20, and with no flag of cmake/Compiler.cmake.
has_no_flags_of_ours() {
  local command
  command=$(grep '"command".*own_model\.cpp' "$1/compile_commands.json")
  [[ $command == *" -std=gnu++20 "* ]] || fail "C++20 is not passed on: $command"
  [[ ! $command =~ \ -(W|m|f|-param) ]] || fail "a flag of Stagecoach is passed on: $command"
}

# headers_stand_alone PREFIX: all installed headers compile, and need no library but fmt.
headers_stand_alone() {
  local headers=$1/include/stagecoach foreign
  find "$headers" -name '*.h' -printf '#include "%P"\n' | sort > "$scratch/headers.cpp"
  echo "package test: $(wc -l < "$scratch/headers.cpp") headers"
  quietly "${CXX:-c++}" -std=c++20 -fsyntax-only -I "$headers" "$scratch/headers.cpp"
  foreign=$(grep -rhoE '#include <[^>]*(/|\.)[^>]*>' "$headers" | grep -vE '<(fmt/|sys/|poll.h|immintrin.h)' | sort -u || true)
  [[ -z $foreign ]] || fail "an installed header needs another library: $foreign"
}

arch=$(cmake --preset package -N | sed -n 's/^ *STAGECOACH_ARCH="\(.*\)"$/\1/p')
[[ -n $arch && $arch != native ]] || fail "the preset package is for this processor only: STAGECOACH_ARCH is '$arch'"
quietly cmake --preset package -B $build -DSTAGECOACH_ARCH=native ${CI:+-DSTAGECOACH_WERROR=ON}
quietly cmake --build $build -j "$(nproc)"

echo "package test: cmake --install and find_package"
quietly cmake --install $build --prefix "$installed"
headers_stand_alone "$installed"
builds_outside "$installed" outside_installed

echo "package test: cpack"
quietly cpack --config $build/CPackConfig.cmake -B "$scratch/packages"
(cd "$scratch/packages" && ls -sh1 -- *.tar.gz *.deb)

echo "package test: the archive, unpacked somewhere else"
rm -rf "$installed"
mkdir "$unpacked"
tar -xf "$scratch"/packages/*.tar.gz -C "$unpacked" --strip-components=1
if grep -rl --include='*.cmake' -e "$PWD" -e "$installed" "$unpacked"; then
  fail "these files name folders of the machine that built them"
fi
builds_outside "$unpacked" outside_unpacked
quietly "$unpacked/bin/ch01_single_device" --smoke
quietly "$unpacked/bin/stagecoach_compare" --help

echo "package test: the packages for Debian"
quietly apt-get install --simulate "$scratch"/packages/stagecoach_*.deb "$scratch"/packages/libstagecoach-dev_*.deb
for deb in "$scratch"/packages/*.deb; do
  dpkg-deb --show --showformat='${Package} ${Version} needs ${Depends}\n' "$deb"
  quietly dpkg-deb --extract "$deb" "$scratch/root"
done
builds_outside "$scratch/root/usr" outside_debian
quietly "$scratch/root/usr/bin/ch03_gpipe" --smoke

# As a part of another project, one without a build type too: it must have none afterwards. Its build folder is as deep
# as ours: for ccache the paths are the same.
for way in add_subdirectory FetchContent; do
  echo "package test: $way"
  parent=build/package_test_$way
  rm -rf "$parent"
  options=()
  [[ $way != FetchContent ]] || options=("-DFETCHCONTENT_SOURCE_DIR_STAGECOACH=$PWD" -DCMAKE_BUILD_TYPE=Release)
  quietly cmake -G Ninja -S tests/package/parent -B "$parent" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
    -DSTAGECOACH_ARCH=native -DSTAGECOACH_MPI=OFF ${CI:+-DSTAGECOACH_WERROR=ON} "${options[@]}"
  has_no_flags_of_ours "$parent"
done
quietly cmake --build "$parent" -j "$(nproc)"
trains "$parent/own_model"
quietly cmake --install "$parent" --prefix "$installed"
[[ ! -e $installed/lib ]] || fail "a project that Stagecoach is part of installs it, without having set STAGECOACH_INSTALL"
echo "package test: passed after $SECONDS s"
