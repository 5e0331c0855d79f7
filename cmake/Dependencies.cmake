# Libraries, all from the distribution's packages (scripts/setup.sh installs them).
if(STAGECOACH_STATIC)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
set(STAGECOACH_FMT $<IF:$<BOOL:${STAGECOACH_STATIC}>,fmt::fmt-header-only,fmt::fmt>)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)  # libjpeg-turbo
find_path(STB_INCLUDE_DIR stb_image.h PATH_SUFFIXES stb REQUIRED)

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

# NCCL comes with the toolkit, or as a package of its own.
set(STAGECOACH_HAS_NCCL OFF)
if(STAGECOACH_STATIC AND STAGECOACH_NCCL STREQUAL AUTO)
  set(STAGECOACH_NCCL OFF)  # it is there as a shared library only
endif()
if(STAGECOACH_CUDA_KIND STREQUAL "gpu" AND NOT STAGECOACH_NCCL STREQUAL OFF)
  find_path(STAGECOACH_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(STAGECOACH_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(STAGECOACH_NCCL_INCLUDE_DIR AND STAGECOACH_NCCL_LIBRARY)
    set(STAGECOACH_HAS_NCCL ON)
  endif()
endif()
if(STAGECOACH_NCCL STREQUAL ON AND NOT STAGECOACH_HAS_NCCL)
  message(FATAL_ERROR "NCCL: nccl.h and libnccl were not found, or CUDA is not built (-DSTAGECOACH_CUDA=ON builds it)")
endif()
