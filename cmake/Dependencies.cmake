# Libraries, all from the distribution's packages (scripts/setup.sh installs them).
if(STAGECOACH_STATIC)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
find_package(Threads REQUIRED)
if(NOT TARGET fmt::fmt)  # a project that this one is part of may have it already
  find_package(fmt REQUIRED)
endif()
set(STAGECOACH_FMT $<IF:$<BOOL:${STAGECOACH_STATIC}>,fmt::fmt-header-only,fmt::fmt>)
if(NOT TARGET nlohmann_json::nlohmann_json)
  find_package(nlohmann_json REQUIRED)
endif()
if(STAGECOACH_PROGRAMS)
  find_package(CLI11 REQUIRED)
endif()
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)  # libjpeg-turbo
find_path(STAGECOACH_STB_INCLUDE_DIR stb_image.h PATH_SUFFIXES stb REQUIRED)

# MPI's C interface is all that is used; its old one for C++ would only take time to compile.
set(STAGECOACH_HAS_MPI OFF)
if(STAGECOACH_STATIC AND STAGECOACH_MPI STREQUAL AUTO)
  set(STAGECOACH_MPI OFF)  # no distribution has it as a static library
endif()
if(NOT STAGECOACH_MPI STREQUAL OFF)
  set(MPI_CXX_SKIP_MPICXX ON)
  if(STAGECOACH_MPI STREQUAL ON)
    find_package(MPI REQUIRED COMPONENTS CXX)
  else()
    find_package(MPI COMPONENTS CXX QUIET)
  endif()
  set(STAGECOACH_HAS_MPI ${MPI_CXX_FOUND})
endif()

# Of Gloo, the classes of its TCP transport are extended (parallel/comm/gloo/gloo_mesh.cpp), so the version matters:
# that of Debian 12, whose package lacks a header (cmake/gloo).
set(STAGECOACH_HAS_GLOO OFF)
if(NOT STAGECOACH_GLOO STREQUAL OFF AND NOT STAGECOACH_STATIC)
  find_path(STAGECOACH_GLOO_INCLUDE_DIR gloo/transport/tcp/pair.h)
  find_library(STAGECOACH_GLOO_LIBRARY gloo)
  set(STAGECOACH_GLOO_INCLUDE_DIRS ${STAGECOACH_GLOO_INCLUDE_DIR} ${PROJECT_SOURCE_DIR}/cmake/gloo)
  if(STAGECOACH_GLOO_INCLUDE_DIR AND STAGECOACH_GLOO_LIBRARY)
    try_compile(STAGECOACH_GLOO_FITS ${PROJECT_BINARY_DIR}/gloo_check ${PROJECT_SOURCE_DIR}/cmake/gloo/check.cpp
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${STAGECOACH_GLOO_INCLUDE_DIRS}"
      LINK_LIBRARIES ${STAGECOACH_GLOO_LIBRARY} CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
    set(STAGECOACH_HAS_GLOO ${STAGECOACH_GLOO_FITS})
  endif()
endif()
if(STAGECOACH_GLOO STREQUAL ON AND NOT STAGECOACH_HAS_GLOO)
  message(FATAL_ERROR "Gloo: its headers and libgloo, in the version of Debian 12, were not found (install libgloo-dev)")
endif()

set(STAGECOACH_HAS_NCCL OFF)
if(STAGECOACH_STATIC AND STAGECOACH_NCCL STREQUAL AUTO)
  set(STAGECOACH_NCCL OFF)  # it is there as a shared library only
endif()
if(STAGECOACH_CUDA_KIND STREQUAL "gpu" AND NOT STAGECOACH_NCCL STREQUAL OFF)
  list(PREPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/cmake)
  find_package(NCCL QUIET)
  set(STAGECOACH_HAS_NCCL ${NCCL_FOUND})
endif()
if(STAGECOACH_NCCL STREQUAL ON AND NOT STAGECOACH_HAS_NCCL)
  message(FATAL_ERROR "NCCL: nccl.h and libnccl were not found, or CUDA is not built (-DSTAGECOACH_CUDA=ON builds it)")
endif()
