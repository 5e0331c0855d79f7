# What the preset playground builds, without the floors that the schedules do not need: playground.html, which has all that
# it needs in it. The library is that of every other preset.
find_path(STAGECOACH_FMT_INCLUDE_DIR fmt/format.h PATHS /usr/include REQUIRED NO_CMAKE_FIND_ROOT_PATH)
find_program(NODE NAMES node nodejs REQUIRED NO_CMAKE_FIND_ROOT_PATH)

# Of the system's headers, only these fit.
file(COPY ${STAGECOACH_FMT_INCLUDE_DIR}/fmt DESTINATION ${PROJECT_BINARY_DIR}/include)
file(COPY ${PROJECT_SOURCE_DIR}/cmake/emscripten/ DESTINATION ${PROJECT_BINARY_DIR}/include)
include_directories(SYSTEM ${PROJECT_BINARY_DIR}/include)
add_compile_definitions(FMT_HEADER_ONLY)
add_compile_options(-O3 -flto -fwasm-exceptions)
add_link_options(-O3 -flto -fwasm-exceptions)

add_library(stagecoach_base STATIC
  core/base/error.cpp core/base/parse.cpp core/base/phrases.cpp core/base/printable.cpp)
target_include_directories(stagecoach_base PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(stagecoach_base PRIVATE stagecoach_flags)
add_subdirectory(parallel/drawing)
add_subdirectory(parallel/schedule)
add_subdirectory(parallel/playground)
add_subdirectory(docs/playground)
