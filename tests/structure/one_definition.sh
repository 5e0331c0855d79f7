#!/usr/bin/env bash
# One name, one thing: no two files define the same type, function or constant. C++ does not check that between sources
# that are compiled apart; the program then runs with one of the two, whichever the linker takes.
#
#   tests/structure/one_definition.sh    checks the project, and then that it finds clashes that it plants itself
#
# 1. Two sources include every header, in opposite orders, and are linked with -Wodr.
# 2. The types of other sources are in anonymous namespaces. (nvcc wants its kernels' types elsewhere: *.cu may differ. The
#    examples are programs of one source each, as users write them.)
set -euo pipefail
export LC_ALL=C.UTF-8  # in which the compiler's words are looked for
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Not the headers of other compilers and of libraries that may be missing, as in cmake/Package.cmake, nor those of the
# emulation, which replace the former.
apart='(^|/)(cuda|emulation|kernels/cpu|comm/mpi|comm/nccl|comm/gloo)/'

fail() {
  echo "one definition: $*" >&2
  exit 1
}

# one_meaning FOLDER: links all headers of the project and of the folder, twice.
one_meaning() {
  { git ls-files '*.h' | grep --invert-match --extended-regexp "$apart"; (cd "$1" && find . -name '*.h'); } |
    sed 's/.*/#include "&"/' > "$scratch/forwards.cpp"
  tac "$scratch/forwards.cpp" > "$scratch/backwards.cpp"
  "${CXX:-g++}" -std=c++20 -flto -Wodr -Werror -fPIC -shared -DSTAGECOACH_SOURCE_DIR='""' -I . -I "$1" \
    "$scratch/forwards.cpp" "$scratch/backwards.cpp" -o "$scratch/linked.so"
}

# open_types FILE…: prints the types that these sources define outside of anonymous namespaces.
open_types() {
  awk '/^namespace \{/ { anonymous = 1 } /^}  \/\/ namespace$/ { anonymous = 0 } FNR == 1 { anonymous = 0 }
       !anonymous && /^(class|struct|union|enum|enum class) [A-Za-z0-9]+( final)?( : .*)? \{/ { print FILENAME ": " $0 }' "$@"
}

# finds TEXT COMMAND…: the command says this of what was planted.
finds() {
  "${@:2}" > "$scratch/log" 2>&1 || true
  grep --quiet --fixed-strings "$1" "$scratch/log" || { cat "$scratch/log" >&2; fail "a planted clash was not found: $1"; }
}

mkdir "$scratch/nothing"
one_meaning "$scratch/nothing" || fail "two definitions of one name; rename one of them"
mapfile -t sources < <(git ls-files '*.cpp' | grep -vE "$apart|/no_cuda\.cpp$|^docs/examples/")
found=$(open_types "${sources[@]}")
[[ -z $found ]] || fail "types of a source outside of an anonymous namespace; move them into one:"$'\n'"$found"

planted=$scratch/planted
mkdir "$planted"
echo 'namespace stagecoach { struct Pipe { int stages; }; }' > "$planted/clash.h"
finds "redefinition of ‘struct stagecoach::Pipe’" one_meaning "$planted"
# Headers with one guard: a source has the type of the first.
for type in int double; do
  printf '%s\n' '#ifndef GUARD' '#define GUARD' "struct Planted { $type x; virtual ~Planted() {} };" 'inline Planted planted;' '#endif' \
    > "$planted/$type.h"
done
rm "$planted/clash.h"
finds "violates the C++ One Definition Rule" one_meaning "$planted"
printf 'struct Planted {\n  int x;\n};\nnamespace {\nstruct Hidden {\n  int x;\n};\n}  // namespace\n' > "$planted/clash.cpp"
finds "$planted/clash.cpp: struct Planted {" open_types "$planted/clash.cpp"
echo "one definition: $(wc -l < "$scratch/forwards.cpp") headers, ${#sources[@]} sources; planted clashes are found"
