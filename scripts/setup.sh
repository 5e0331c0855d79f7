#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks, with apt (Debian 12, Ubuntu 24.04, or newer).
# On other systems it only looks, and names what is missing.
#
#   scripts/setup.sh                     to build and test
#   scripts/setup.sh --for-mpi           also Open MPI: ranks that are processes, on one machine or many
#   scripts/setup.sh --for-gloo          also Gloo: ranks that are processes, without MPI
#   scripts/setup.sh --for-slurm         also a SLURM for scripts/slurm_here.sh
#   scripts/setup.sh --for-emulation     also what the preset emulated needs: GPU kernels without a GPU
#   scripts/setup.sh --for-labs          also what grading hand-ins needs (scripts/lab.sh grade)
#   scripts/setup.sh --for-packages      also what 'cpack --preset package' needs
#   scripts/setup.sh --for-playground    also what 'scripts/build.sh playground' and its tests need
#   scripts/setup.sh --for-ci            also what the checks in .ci/run need
#   scripts/setup.sh --for-nightly       also what those in scripts/nightly.sh need
#   scripts/setup.sh --for-benchmarks    also what the benchmarks need
set -euo pipefail

purposes=(build)
for argument in "$@"; do
  case $argument in
    --for-ci) purposes+=(ci emulation gloo labs mpi packages) ;;
    --for-nightly) purposes+=(ci emulation gloo labs mpi packages playground slurm arm64 systems benchmarks) ;;
    --for-slurm) purposes+=(slurm mpi) ;;
    --for-mpi | --for-gloo | --for-emulation | --for-labs | --for-packages | --for-playground | --for-benchmarks) purposes+=("${argument#--for-}") ;;
    *)
      echo "usage: scripts/setup.sh [--for-mpi] [--for-gloo] [--for-slurm] [--for-emulation] [--for-labs] [--for-packages] [--for-playground] [--for-ci] [--for-nightly] [--for-benchmarks]" >&2
      exit 2
      ;;
  esac
done

compiler=${CXX:-c++}
compiler_package=g++
[[ $compiler != g++-[0-9]* ]] || compiler_package=$compiler  # where g++ is too old, another may be chosen

has_command() { command -v "$1" > /dev/null; }

# What the project uses of C++20 and older compilers or libraries lack: g++ 11, clang 14, and libc++ up to 17.
has_compiler() {
  # shellcheck disable=SC2086  # several flags
  "$compiler" ${CXXFLAGS:-} -std=c++20 -D_LIBCPP_ENABLE_EXPERIMENTAL -x c++ -fsyntax-only - 2> /dev/null <<- 'END'
	#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
	#error "too old"
	#endif
	#include <source_location>
	#include <thread>
	int line() {
	  int line = 0;
	  std::jthread([&] { line = std::source_location::current().line(); }).join();
	  return line;
	}
	END
}

has_cmake() {
  local version
  version=$(cmake --version 2> /dev/null | sed -n 's/^cmake version //p')
  [[ -n $version && $(printf '%s\n' 3.25 "$version" | sort --version-sort | head -n 1) == 3.25 ]]
}

# The compiler knows where headers lie; while there is none, look in the usual places.
has_header() {
  if has_command "$compiler"; then
    printf '#if !__has_include(<%s>)\n#error "missing"\n#endif\n' "$1" | "$compiler" -x c++ -E - > /dev/null 2>&1
  else
    [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]]
  fi
}

# The linker knows where libraries lie. cblas.h alone tells nothing: other BLAS libraries have it too.
has_library() {
  has_command "$compiler" && echo 'int main() {}' | "$compiler" -x c++ -o /dev/null - "-l$1" 2> /dev/null
}

has_clang_sanitizers() { [[ -e $(clang++-19 -print-file-name=libclang_rt.tsan-$(uname -m).a 2> /dev/null) ]]; }
has_stb() { has_header stb/stb_image.h || has_header stb_image.h; }
can_make_venv() { python3 -c 'import ensurepip' 2> /dev/null; }
has_python_module() { /usr/bin/python3 -c "import $1" 2> /dev/null; }

# need PURPOSE PACKAGE NAME CHECK…: if that is a purpose and the check fails, notes the package and the name.
need() {
  if [[ " ${purposes[*]} " == *" $1 "* ]] && ! "${@:4}"; then
    missing_packages+=("$2")
    missing_names+=("$3")
  fi
}

look() {
  missing_packages=()
  missing_names=()
  need build "$compiler_package" "a C++20 compiler (g++ 12 or clang 16 or newer, with libstdc++ or libc++ 19 or newer; CXX and CXXFLAGS choose one)" has_compiler
  need build cmake "CMake 3.25 or newer" has_cmake
  need build ninja-build "ninja" has_command ninja
  need build libfmt-dev "fmt" has_header fmt/core.h
  need build nlohmann-json3-dev "nlohmann json" has_header nlohmann/json.hpp
  need build libcli11-dev "CLI11" has_header CLI/CLI.hpp
  need build zlib1g-dev "zlib" has_header zlib.h
  need build libjpeg-dev "libjpeg-turbo (jpeglib.h)" has_header jpeglib.h
  need build libstb-dev "stb (stb_image.h)" has_stb
  need build libgtest-dev "GoogleTest" has_header gtest/gtest.h
  need build python3 "Python 3, for tests of the scripts and the texts" has_command python3
  need mpi libopenmpi-dev "the headers of an MPI" has_command mpicc
  need mpi openmpi-bin "mpirun" has_command mpirun
  need gloo libgloo-dev "Gloo" has_header gloo/transport/tcp/pair.h
  need slurm slurm-wlm "SLURM" has_command slurmctld
  need slurm munge "munge" has_command munged
  need labs bubblewrap "bubblewrap (bwrap)" has_command bwrap
  need emulation libthrust-dev "Thrust" has_header thrust/version.h
  need packages dpkg-dev "dpkg-shlibdeps" has_command dpkg-shlibdeps
  need packages file "file" has_command file
  need playground emscripten "emscripten" has_command em++
  need playground nodejs "node" has_command node
  need playground chromium "Chromium, which tries the page" has_command chromium
  need ci git "git" has_command git
  need ci clang-format-14 "clang-format-14 (other versions format otherwise)" has_command clang-format-14
  need ci clang-19 "clang 19, the second compiler" has_command clang++-19
  need ci libclang-rt-19-dev "clang 19's sanitizers" has_clang_sanitizers
  need ci lld "lld, which links programs with sanitizers several times as fast" has_command ld.lld
  need ci qemu-user "qemu-x86_64, which runs programs as other processors do" has_command qemu-x86_64
  need ci doxygen "doxygen" has_command doxygen
  need ci python3-venv "venv for Python 3, for the documentation's tools" can_make_venv
  need ci python3-numpy "numpy for /usr/bin/python3" has_python_module numpy
  need ci python3-pil "Pillow for /usr/bin/python3" has_python_module PIL
  need ci xz-utils "xz" has_command xz
  need arm64 g++-aarch64-linux-gnu "g++ for 64-bit ARM" has_command aarch64-linux-gnu-g++
  need arm64 qemu-user "qemu-aarch64" has_command qemu-aarch64
  local library
  for library in libfmt-dev zlib1g-dev libjpeg-dev libgtest-dev libstb-dev; do
    need arm64 "$library:arm64" "$library for 64-bit ARM" is_installed "$library:arm64"
  done
  need systems debootstrap "debootstrap" has_command debootstrap
  need benchmarks libbenchmark-dev "Google Benchmark" has_header benchmark/benchmark.h
  need benchmarks libopenblas-dev "OpenBLAS" has_library openblas
}

stop() {
  printf 'set-up: %s\n' "$@" >&2
  exit 1
}

# name_missing: "fmt, zlib"
name_missing() {
  local names
  printf -v names '%s, ' "${missing_names[@]}"
  echo "${names%, }"
}

is_installed() {
  [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2> /dev/null) == installed ]]
}

install_missing() {
  local packages=() package
  for package in "${missing_packages[@]}"; do
    is_installed "$package" || packages+=("$package")
  done
  [[ ${#packages[@]} -gt 0 ]] || return 0  # all there, but too old
  for package in ccache ca-certificates; do  # useful, but no reason to install by themselves
    is_installed "$package" || packages+=("$package")
  done

  local as_root=()
  if [[ $(id -u) != 0 ]]; then
    as_root=(sudo)
    [[ -t 0 ]] || as_root+=(-n)  # without a terminal nobody can type the password
    if ! has_command sudo || ! "${as_root[@]}" true 2> /dev/null; then
      stop "missing: $(name_missing)" \
        "run as root: apt-get update && apt-get install --no-install-recommends ${packages[*]}"
    fi
  fi

  echo "set-up: installing ${packages[*]}"
  if [[ " ${packages[*]} " == *:arm64\ * ]]; then
    "${as_root[@]}" dpkg --add-architecture arm64
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3
    -o DPkg::Lock::Timeout=120)
  # A list that cannot be fetched may be one that nothing here comes from, so the installation decides.
  "${apt[@]}" update > /dev/null || echo "set-up: apt-get update failed; trying to continue" >&2
  local log
  log=$(mktemp)
  if ! "${apt[@]}" install --yes --no-install-recommends "${packages[@]}" 2>&1 | tee "$log" | count_packages; then
    tail -n 5 "$log" >&2
    rm -f "$log"
    stop "apt-get could not install ${packages[*]}" \
      "its last lines are above; check the network and the package lists"
  fi
  rm -f "$log"
}

# Reads what apt-get prints, and counts the packages, as installing them takes minutes.
count_packages() {
  awk '/ newly installed, / { all = $1 + $3 }
       /^Get:/ { fetched++ }
       /^Unpacking / { unpacked++ }
       /^Setting up / { done++ }
       /^(Get:|Unpacking |Setting up )/ && (++lines % 25 == 0 || done == all) {
         printf "set-up: of %d packages %d are downloaded, %d unpacked, %d installed\n", all, fetched, unpacked, done
         fflush()
       }'
}

look
if [[ ${#missing_names[@]} -gt 0 ]] && has_command apt-get && has_command dpkg-query; then
  install_missing
  hash -r  # forget where commands were not found
  look
fi
if [[ ${#missing_names[@]} -gt 0 ]]; then
  stop "missing or too old: $(name_missing)" "install them and run this script again"
fi
echo "set-up: everything is installed"
