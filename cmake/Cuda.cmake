# CUDA is looked for and left out if it is not there; nothing of a CPU-only build needs nvcc. There are no CUDA kernels
# yet, so every build links core/no_cuda.cpp, and this only says what a build with kernels would find.
if(STAGECOACH_CUDA STREQUAL "AUTO")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    message(STATUS "CUDA ${CUDAToolkit_VERSION} is there; this version has no CUDA kernels yet and runs on the CPU")
  else()
    message(STATUS "CUDA is not there; building for the CPU")
  endif()
endif()
