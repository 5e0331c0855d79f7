# Which CUDA backend core/ is built with: none (core/no_cuda.cpp), that for GPUs (nvcc), or the same sources emulated on
# the CPU (tests/emulation). Sets STAGECOACH_CUDA_KIND to none, gpu or emulated.
set(STAGECOACH_CUDA_KIND none)

if(STAGECOACH_CUDA STREQUAL "EMULATED")
  set(STAGECOACH_CUDA_KIND emulated)
  # Thrust on its host system is headers only. That of the distribution: the toolkit's would bring in its runtime.
  find_path(STAGECOACH_THRUST_DIR thrust/version.h
            PATHS /usr/include NO_DEFAULT_PATH REQUIRED)
  message(STATUS "CUDA: emulated on the CPU, for tests")
elseif(STAGECOACH_CUDA STREQUAL "ON")
  set(STAGECOACH_CUDA_KIND gpu)
elseif(STAGECOACH_CUDA STREQUAL "AUTO")
  # nvcc alone builds for minutes what nobody here could run, so a GPU is required too.
  find_program(STAGECOACH_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(STAGECOACH_NVCC)
    execute_process(COMMAND ${STAGECOACH_NVCC} --version OUTPUT_VARIABLE nvcc_words ERROR_QUIET)
    string(REGEX MATCH "release ([0-9.]+)" nvcc_words "${nvcc_words}")
    set(nvcc_release "${CMAKE_MATCH_1}")
  endif()
  if(STAGECOACH_NVCC AND nvcc_release VERSION_LESS 12.4)
    message(STATUS "CUDA: nvcc ${nvcc_release} is older than 12.4, the first that was tried; building for the CPU")
  elseif(STAGECOACH_NVCC AND EXISTS /dev/nvidiactl)
    set(STAGECOACH_CUDA_KIND gpu)
  elseif(STAGECOACH_NVCC)
    message(STATUS "CUDA: nvcc is there, a GPU is not; building for the CPU (-DSTAGECOACH_CUDA=ON builds for GPUs anyway)")
  else()
    message(STATUS "CUDA: nvcc is not there; building for the CPU")
  endif()
endif()

if(STAGECOACH_CUDA_KIND STREQUAL "gpu")
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # Turing to Hopper, and what newer GPUs can compile for themselves.
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90a-real 90-virtual)
    set(for_all_gpus TRUE)
    if(EXISTS /dev/nvidiactl AND NOT STAGECOACH_STATIC)  # static: for another machine, whose GPU may be another
      execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                      OUTPUT_VARIABLE gpus ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
      string(REPLACE "\n" ";" gpus "${gpus}")
      list(REMOVE_DUPLICATES gpus)
      list(TRANSFORM gpus REPLACE "^([0-9]+)\\.([0-9]+)$" "\\1\\2-real")
      if(gpus MATCHES "^[0-9]")
        set(CMAKE_CUDA_ARCHITECTURES ${gpus})
        set(for_all_gpus FALSE)
      endif()
    endif()
  endif()
  # nvcc compiles the instructions of warpgroups (core/cuda/tensor_core.h) for 90a only, which `native` does not choose.
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^90$" "90a-real;90-virtual")
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^90-real$" 90a-real)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  enable_language(CUDA)
  # CMake 3.25 knows no C++20 for recent compilers of CUDA.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # a program needs nothing but the driver, and NCCL where it is built in
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  if(for_all_gpus AND CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13)
    list(PREPEND CMAKE_CUDA_ARCHITECTURES 70-real)  # Volta, which nvcc 13 compiles for no more
  endif()
  find_package(CUDAToolkit REQUIRED)
  list(JOIN CMAKE_CUDA_ARCHITECTURES ", " shown)
  message(STATUS "CUDA: ${CUDAToolkit_VERSION}, for compute capability ${shown}")
endif()
