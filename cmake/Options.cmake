# What a user may choose; the presets set these. As a part of another project (add_subdirectory, FetchContent) Stagecoach
# is its libraries only, for the CPU, and that project chooses the flags.
if(PROJECT_IS_TOP_LEVEL)
  set(arch native)
  set(cuda AUTO)
else()
  set(arch "")
  set(cuda OFF)
endif()
option(STAGECOACH_PROGRAMS "Build the programs of the chapters (needs CLI11)" ${PROJECT_IS_TOP_LEVEL})
option(STAGECOACH_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(STAGECOACH_INSTALL "Add Stagecoach to what 'cmake --install' installs" ${PROJECT_IS_TOP_LEVEL})
option(STAGECOACH_BENCHMARKS "Build the benchmarks (needs Google Benchmark and OpenBLAS)" OFF)
option(STAGECOACH_DOCS "Add the target 'docs' (needs Doxygen)" OFF)
option(STAGECOACH_WERROR "Treat warnings as errors" OFF)
if(CMAKE_CROSSCOMPILING)
  set(arch "")  # the compiler's default: this machine is not the one that the programs run on
endif()
set(STAGECOACH_ARCH "${arch}" CACHE STRING
    "The processor to build for (-march): native; x86-64-v3; or a list such as x86-64;x86-64-v3;x86-64-v4, of whose CPU kernels programs choose the best that the processor supports; nothing leaves it to the compiler")
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(system linux)
else()
  set(system posix)
endif()
set(STAGECOACH_SYSTEM ${system} CACHE STRING
    "The source of what each operating system does in its own way (core/base/system.h): linux, or posix for all others")
set_property(CACHE STAGECOACH_SYSTEM PROPERTY STRINGS linux posix)
if(NOT STAGECOACH_SYSTEM MATCHES "^(linux|posix)$")
  message(FATAL_ERROR "STAGECOACH_SYSTEM: expected linux or posix, got '${STAGECOACH_SYSTEM}'")
endif()
set(STAGECOACH_BATCH 8 CACHE STRING
    "How many sources are compiled at once (cmake/Batches.cmake): with 1 each by itself, which is quicker after a change of one")
option(STAGECOACH_STATIC "Link all libraries but those of the system statically, to run programs on another machine" OFF)
option(STAGECOACH_FUZZ "Link the fuzz targets of tests/fuzz with libFuzzer (needs clang)" OFF)
set(STAGECOACH_SANITIZE "" CACHE STRING "Sanitizers, for example address,undefined")
set(STAGECOACH_CUDA ${cuda} CACHE STRING
    "CUDA: AUTO builds for GPUs where nvcc and a GPU are found, ON always, OFF never, EMULATED runs the kernels on the CPU")
set_property(CACHE STAGECOACH_CUDA PROPERTY STRINGS AUTO ON OFF EMULATED)
set(STAGECOACH_MPI AUTO CACHE STRING "MPI, for ranks that are processes: AUTO where it is found, ON always, OFF never")
set_property(CACHE STAGECOACH_MPI PROPERTY STRINGS AUTO ON OFF)
set(STAGECOACH_GLOO AUTO CACHE STRING
    "Gloo, for ranks that are processes without MPI: AUTO where it is found, ON always, OFF never")
set_property(CACHE STAGECOACH_GLOO PROPERTY STRINGS AUTO ON OFF)
set(STAGECOACH_NCCL AUTO CACHE STRING
    "NCCL, for ranks that have a GPU each: AUTO where it is found and CUDA is built, ON always, OFF never")
set_property(CACHE STAGECOACH_NCCL PROPERTY STRINGS AUTO ON OFF)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
endif()
