# What other projects see of Stagecoach: the targets Stagecoach::core, nn, datasets, schedule, training and parallel, by
# aliases here and under the same names in what `cmake --install` installs, and packages of that (`cpack --preset
# package`).
set(floors base core nn datasets drawing schedule ranks training parallel)
foreach(floor ${floors})
  add_library(Stagecoach::${floor} ALIAS stagecoach_${floor})
  set_target_properties(stagecoach_${floor} PROPERTIES EXPORT_NAME ${floor})
endforeach()
if(NOT STAGECOACH_INSTALL)
  return()
endif()

string(COMPARE EQUAL ${STAGECOACH_CUDA_KIND} gpu STAGECOACH_HAS_CUDA)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Stagecoach)

# The libraries. A user includes "parallel/parallel.h", as the project itself does. Headers of kernels and of backends
# stay out: only the sources of the floors include them, and a kernel's vectors have the width of this project's -march.
# So do the headers for JSON, which need a library that a user may not have.
list(TRANSFORM floors PREPEND stagecoach_ OUTPUT_VARIABLE libraries)
install(TARGETS ${libraries} EXPORT StagecoachTargets COMPONENT development)
install(DIRECTORY core nn datasets parallel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stagecoach COMPONENT development
  FILES_MATCHING PATTERN "*.h"
  PATTERN core/cuda EXCLUDE
  PATTERN core/base/json_object.h EXCLUDE
  PATTERN core/base/parse_json.h EXCLUDE
  PATTERN core/kernels/costs EXCLUDE
  PATTERN core/kernels/cpu EXCLUDE
  PATTERN core/kernels/cuda EXCLUDE
  PATTERN parallel/comm/gloo EXCLUDE
  PATTERN parallel/comm/mpi EXCLUDE
  PATTERN parallel/comm/nccl EXCLUDE
  PATTERN parallel/playground EXCLUDE)
install(DIRECTORY docs/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/stagecoach COMPONENT development
  PATTERN examples/CMakeLists.txt EXCLUDE)  # a part of this project
install(EXPORT StagecoachTargets NAMESPACE Stagecoach:: DESTINATION ${config_dir} COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/StagecoachConfig.cmake.in
  ${PROJECT_BINARY_DIR}/StagecoachConfig.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/StagecoachConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/StagecoachConfig.cmake ${PROJECT_BINARY_DIR}/StagecoachConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake
  DESTINATION ${config_dir} COMPONENT development)

# The packages: one archive, and two for Debian.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR})
set(CPACK_PACKAGE_CONTACT "Stagecoach contributors")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_COMPONENTS_ALL programs development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME stagecoach)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)  # asks dpkg-shlibdeps which packages the programs need
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libstagecoach-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
# What StagecoachConfig.cmake looks for. The libraries have names of this version of fmt.
math(EXPR next_fmt "${fmt_VERSION_MAJOR} + 1")
set(needed "libfmt-dev (>= ${fmt_VERSION_MAJOR}), libfmt-dev (<< ${next_fmt}), libjpeg-dev, zlib1g-dev")
if(STAGECOACH_HAS_MPI)
  string(APPEND needed ", libopenmpi-dev")
endif()
if(STAGECOACH_HAS_GLOO)
  string(APPEND needed ", libgloo-dev")
endif()
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ${needed})
foreach(package stagecoach:programs libstagecoach-dev:development)
  string(REPLACE ":" ";" package ${package})
  list(POP_BACK package component)
  install(FILES LICENSE DESTINATION share/doc/${package} RENAME copyright COMPONENT ${component})
endforeach()
include(CPack)
