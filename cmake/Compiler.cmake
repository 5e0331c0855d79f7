# Flags that every target shares, as one interface target. No project that uses one of the libraries gets them.
set(CMAKE_CXX_EXTENSIONS OFF)
if(PROJECT_IS_TOP_LEVEL)  # as a part of another project, what that one has set
  set(CMAKE_CXX_STANDARD 20)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  find_program(CCACHE ccache)
  if(CCACHE)
    # Paths are relative for it, so that a copy of the project has the objects of this one.
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE})
  endif()
endif()

# libc++ up to 19 has std::jthread only among what it calls experimental.
include(CheckCXXSourceCompiles)
check_cxx_source_compiles(
  "#include <cstddef>\n#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 200000\n#error\n#endif\nint main() {}"
  STAGECOACH_HAS_JTHREAD)
if(NOT STAGECOACH_HAS_JTHREAD)
  set(STAGECOACH_JTHREAD _LIBCPP_ENABLE_EXPERIMENTAL)
endif()

add_library(stagecoach_flags INTERFACE)
target_compile_definitions(stagecoach_flags INTERFACE ${STAGECOACH_JTHREAD})
target_include_directories(stagecoach_flags INTERFACE ${PROJECT_SOURCE_DIR})
# nvcc has other options, so these are for C++ only.
function(stagecoach_compile_options)
  foreach(option ${ARGN})
    target_compile_options(stagecoach_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${option}>)
  endforeach()
endfunction()

stagecoach_compile_options(-Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local> -Wconversion -Wno-sign-conversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  stagecoach_compile_options(-Wno-restrict)  # false alarms on "x" + string: GCC bug 105651
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  stagecoach_compile_options(-Wno-pass-failed)  # with little optimisation a loop that could be vectorised is not
  stagecoach_compile_options(-Wno-deprecated-declarations)  # std::stable_sort of libstdc++ 12 uses one; g++ tells of ours
  # -march=native of Clang 19 asks for avx10.1-256 beside AVX-512, and warns of that itself.
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-Winvalid-feature-combination STAGECOACH_WARNS_OF_FEATURES)
  if(STAGECOACH_WARNS_OF_FEATURES)
    stagecoach_compile_options(-Wno-invalid-feature-combination)
  endif()
endif()
if(STAGECOACH_WERROR)
  stagecoach_compile_options(-Werror)
endif()
if(STAGECOACH_ARCH)  # a list of levels has its first one in all targets without the property STAGECOACH_LEVEL
  list(GET STAGECOACH_ARCH 0 arch)
  set(level $<TARGET_PROPERTY:STAGECOACH_LEVEL>)
  stagecoach_compile_options(-march=$<IF:$<BOOL:${level}>,${level},${arch}>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # CMake's -O3 unrolls and vectorises the elementwise loops; results stay those of IEEE arithmetic (no -ffast-math).
  stagecoach_compile_options(-fno-math-errno -fno-trapping-math)
  # For AMD's processors GCC fuses a multiplication and an addition in some loops and not in others. The same sum would
  # then have other bytes in a tile of another size, so it must fuse in all.
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(--param=avoid-fma-max-bits=0 STAGECOACH_CAN_ALWAYS_FUSE)
  if(STAGECOACH_CAN_ALWAYS_FUSE)
    stagecoach_compile_options(--param=avoid-fma-max-bits=0)
  endif()
  # GCC 12 turns `x ? Pair{2, 1} : Pair{0, 0}` into code without a branch for Intel's processors since Skylake, and with
  # -O1 takes the second element from flags that computing the first has changed (tests/core/compiler_test.cpp). So it
  # must keep branches that set more than one variable.
  check_cxx_compiler_flag(--param=max-rtl-if-conversion-insns=1 STAGECOACH_CAN_KEEP_BRANCHES)
  if(STAGECOACH_CAN_KEEP_BRANCHES)
    stagecoach_compile_options(--param=max-rtl-if-conversion-insns=1)
  endif()
endif()
# Sanitizers watch the libraries and the programs. Targets with the property STAGECOACH_UNWATCHED are only linked with
# them: tests, see stagecoach_unwatched.
if(STAGECOACH_SANITIZE)
  set(watched $<NOT:$<BOOL:$<TARGET_PROPERTY:STAGECOACH_UNWATCHED>>>)
  stagecoach_compile_options(
    $<${watched}:-fsanitize=${STAGECOACH_SANITIZE}> $<${watched}:-fno-omit-frame-pointer>
    $<${watched}:-fno-sanitize-recover=all>
    # Debug information names files as seen from the project's root, so that ccache knows the objects in every clone.
    $<${watched}:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # False alarms, in the library's <regex> among others: GCC's manual advises against both together.
    stagecoach_compile_options($<${watched}:-Wno-maybe-uninitialized>)
  endif()
  target_link_options(stagecoach_flags INTERFACE -fsanitize=${STAGECOACH_SANITIZE})
  find_program(STAGECOACH_LLD ld.lld)
  if(STAGECOACH_LLD)
    target_link_options(stagecoach_flags INTERFACE -fuse-ld=lld)  # the default linker takes several times as long
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND STAGECOACH_SANITIZE MATCHES address)
    target_link_options(stagecoach_flags INTERFACE -static-libasan)  # its calls are shorter: tests take a tenth less
  endif()
endif()
