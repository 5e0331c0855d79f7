# CUDA is used if it is there and left out if not. A build without it links core/no_cuda.cpp.
set(STAGECOACH_HAS_CUDA OFF)
if(STAGECOACH_CUDA STREQUAL "AUTO")
  find_package(CUDAToolkit QUIET)
endif()
