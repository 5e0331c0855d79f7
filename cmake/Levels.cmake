# STAGECOACH_ARCH may list levels of x86-64, the lowest first. All code is compiled for the first one, and the CPU kernels
# once more for each of the others; core/kernels/levels.h says how a program chooses.
#
# The danger is that both have inline functions of one name, those of templates included: of two copies a linker keeps
# any, and then code for every processor calls instructions that only some have. So the objects of a level become one
# object in which everything is local, except for its entry, and its copies (COMDAT groups) are no longer replaceable.

# stagecoach_add_levels(LIBRARY SOURCE…): adds the kernels' sources to the library, for every level of STAGECOACH_ARCH.
function(stagecoach_add_levels library)
  target_sources(${library} PRIVATE ${ARGN})
  # In a batch the compiler might inline, and then fuse, something else than for another level.
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  list(LENGTH STAGECOACH_ARCH count)
  set(declared "")
  if(count GREATER 1)
    stagecoach_require_levels()
    list(SUBLIST STAGECOACH_ARCH 1 -1 higher)
    foreach(level ${higher})
      stagecoach_add_level(${library} ${level} ${ARGN})
      string(REPLACE "x86-64-v" "" version ${level})
      list(APPEND declared "LEVEL(${version})")
    endforeach()
  endif()
  list(JOIN declared " " declared)
  set(lowest "")
  if(STAGECOACH_ARCH)
    list(GET STAGECOACH_ARCH 0 lowest)
  endif()
  set_source_files_properties(kernels/levels.cpp PROPERTIES COMPILE_DEFINITIONS
    "STAGECOACH_LOWEST_ARCH=\"${lowest}\";STAGECOACH_HIGHER_LEVELS=${declared}")
endfunction()

function(stagecoach_require_levels)
  set(ordered)
  foreach(level x86-64 x86-64-v2 x86-64-v3 x86-64-v4)
    if(level IN_LIST STAGECOACH_ARCH)
      list(APPEND ordered ${level})
    endif()
  endforeach()
  if(NOT "${ordered}" STREQUAL "${STAGECOACH_ARCH}")
    message(FATAL_ERROR "STAGECOACH_ARCH: expected one processor, or several of x86-64;x86-64-v2;x86-64-v3;x86-64-v4 in "
                        "this order, got ${STAGECOACH_ARCH}")
  endif()
  include(CheckCXXSourceCompiles)
  check_cxx_source_compiles("int main() { return __builtin_cpu_supports(\"x86-64-v4\"); }" STAGECOACH_KNOWS_LEVELS)
  execute_process(COMMAND ${CMAKE_LINKER} --version OUTPUT_VARIABLE linker ERROR_QUIET)
  if(NOT STAGECOACH_KNOWS_LEVELS OR NOT linker MATCHES "GNU ld" OR STAGECOACH_SANITIZE)
    message(FATAL_ERROR "STAGECOACH_ARCH: several levels need g++ 12 or clang 19, for x86-64, GNU ld, and no sanitizer; "
                        "give one level")
  endif()
endfunction()

function(stagecoach_add_level library level)
  string(MAKE_C_IDENTIFIER ${level} name)
  set(objects stagecoach_kernels_${name})
  set(entry stagecoach_tables_of_${name})
  add_library(${objects} OBJECT ${ARGN})
  set_target_properties(${objects} PROPERTIES STAGECOACH_LEVEL ${level})
  target_link_libraries(${objects} PRIVATE stagecoach_flags ${STAGECOACH_FMT} Threads::Threads)
  target_compile_definitions(${objects} PRIVATE STAGECOACH_TABLES_OF_LEVEL=${entry})
  # Unique symbols would stay global, and the linker needs the code itself, not what link-time optimisation makes it of.
  target_compile_options(${objects} PRIVATE -fno-lto $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  set(whole ${CMAKE_CURRENT_BINARY_DIR}/${objects}.o)
  add_custom_command(OUTPUT ${whole}
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${whole} $<TARGET_OBJECTS:${objects}>
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=${entry} ${whole}
    DEPENDS $<TARGET_OBJECTS:${objects}>
    COMMENT "Joining the CPU kernels for ${level}"
    COMMAND_EXPAND_LISTS VERBATIM)
  target_sources(${library} PRIVATE ${whole})
endfunction()
