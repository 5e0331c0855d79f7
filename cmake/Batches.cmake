# Most of the time that a small source takes to compile goes into the headers that it includes. A batch is a generated
# source that includes several, and reads those headers once: a build from nothing takes half the time.
#
# Names in anonymous namespaces must therefore differ within a target. CMake's own batches (CMAKE_UNITY_BUILD) name their
# sources by absolute paths, so ccache would know none of them in another clone; these are relative to the project.

# stagecoach_batches(TARGET…): compiles the target's sources in batches of STAGECOACH_BATCH. By themselves stay main.cpp,
# which readers change most, and sources that have flags of their own or SKIP_UNITY_BUILD_INCLUSION.
function(stagecoach_batches)
  if(STAGECOACH_BATCH LESS 2)
    return()
  endif()
  foreach(target ${ARGN})  # at the end, when all sources and their properties are known
    cmake_language(EVAL CODE
      "cmake_language(DEFER DIRECTORY [[${PROJECT_SOURCE_DIR}]] CALL stagecoach_batch_target ${target})")
  endforeach()
endfunction()

function(stagecoach_batch_target target)
  get_target_property(build_folder ${target} BINARY_DIR)
  stagecoach_batchable_sources(${target} sources)
  set(batch 0)
  while(sources)  # a preset that adds sources at the end has the first batches of the others, for ccache
    list(SUBLIST sources 0 ${STAGECOACH_BATCH} members)
    list(REMOVE_ITEM sources ${members})
    math(EXPR batch "${batch} + 1")
    set(file ${build_folder}/${target}_batch_${batch}.cpp)
    list(TRANSFORM members REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE includes)
    list(JOIN includes "" includes)
    file(CONFIGURE OUTPUT ${file} CONTENT "${includes}" @ONLY)  # leaves a file alone that is the same already
    target_sources(${target} PRIVATE ${file})
    list(TRANSFORM members PREPEND ${PROJECT_SOURCE_DIR}/)
    set_source_files_properties(${members} TARGET_DIRECTORY ${target} PROPERTIES HEADER_FILE_ONLY ON)
  endwhile()
endfunction()

# Of the target's sources those that batches may include, relative to the project.
function(stagecoach_batchable_sources target result)
  set(batchable)
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(^|/)main\\.cpp$")
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
    set(has_own_flags FALSE)
    foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS SKIP_UNITY_BUILD_INCLUSION)
      get_source_file_property(value ${source} TARGET_DIRECTORY ${target} ${property})
      if(value)
        set(has_own_flags TRUE)
      endif()
    endforeach()
    cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${source} is_ours)
    if(is_ours AND NOT has_own_flags)
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      list(APPEND batchable ${source})
    endif()
  endforeach()
  set(${result} ${batchable} PARENT_SCOPE)
endfunction()
