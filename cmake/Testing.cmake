# stagecoach_test(NAME [CUDA] [WATCHED] SOURCES … [ONE_THREAD …] LIBRARIES … [LABELS …] [SLOW filter] [TIMEOUT seconds]
#                 [SHARDS n])
# One test program per floor. CTest runs every test of it by itself, in any order; with sanitizers, whose programs take
# longer to start than most tests take to run, several per process and in random order: in SHARDS processes, or 4.
# CUDA: some tests run on a GPU too, and the test Cuda.Half says whether they did. WATCHED: sanitizers watch its sources
# too. ONE_THREAD: sources whose tests start no second thread without a GPU or MPI, or only in programs that other tests
# run too. The thread sanitizer can find nothing there, and goes without them. SLOW: the tests that match this filter of
# Google Test have the label slow (those of 5 seconds or more, so that the others take about three minutes), except with
# sanitizers.
find_package(GTest REQUIRED)
include(GoogleTest)
set(STAGECOACH_SLOW_COST 1000)  # slow tests begin first, so that none of them runs alone at the end

function(stagecoach_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "CUDA;WATCHED" "SLOW;TIMEOUT;SHARDS" "SOURCES;ONE_THREAD;LIBRARIES;LABELS")
  if(NOT STAGECOACH_SANITIZE MATCHES thread)
    list(APPEND arg_SOURCES ${arg_ONE_THREAD})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)  # against hangs only; no test measures time
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 4)
  endif()
  add_executable(${name} ${arg_SOURCES})
  stagecoach_batches(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} stagecoach_test_support)
  if(arg_CUDA)
    target_link_libraries(${name} PRIVATE stagecoach_cuda_half_test)
  endif()
  set(cost 0)
  if(slow IN_LIST arg_LABELS)
    set(cost ${STAGECOACH_SLOW_COST})
  endif()
  if(NOT arg_WATCHED)
    stagecoach_unwatched(${name})
  endif()
  if(STAGECOACH_SANITIZE)
    stagecoach_test_shards(${name} ${arg_SHARDS} "${arg_LABELS}")
    return()
  endif()
  set(all "")
  if(arg_SLOW)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_FILTER "${arg_SLOW}"
      PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${STAGECOACH_SLOW_COST} LABELS slow)
    set(all TEST_FILTER "-${arg_SLOW}")
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST ${all}
    PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${cost} LABELS "${arg_LABELS}")
endfunction()

# stagecoach_unwatched(TARGET…)
# Compiles the sources of a test without the sanitizers that watch the libraries it calls. That takes a third of the
# time, or none: the flags are those of the preset release, so ccache has the object already.
# A function or class of a header has one layout and one meaning with these sanitizers and without, so both kinds of
# objects can be linked. Of an inline function with two copies the linker takes the first, which must be the watched one:
# the libraries are linked whole, before the test. Only the thread sanitizer must know all code of a process.
function(stagecoach_unwatched)
  if(NOT STAGECOACH_SANITIZE MATCHES thread)
    set_target_properties(${ARGN} PROPERTIES STAGECOACH_UNWATCHED ON)
  endif()
endfunction()
if(STAGECOACH_SANITIZE)
  foreach(library core nn datasets drawing ranks training parallel chapter_common pipeline_common compare)
    set(unwatched $<BOOL:$<TARGET_PROPERTY:STAGECOACH_UNWATCHED>>)
    target_link_options(stagecoach_${library} INTERFACE
      $<${unwatched}:LINKER:--whole-archive,$<TARGET_FILE:stagecoach_${library}>,--no-whole-archive>)
  endforeach()
endif()

# Runs the tests of a program in several processes, each with its share of them in random order. Programs with many
# shares take longest, so they begin first.
function(stagecoach_test_shards name shards labels)
  math(EXPR last "${shards} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME ${name}/${shard} COMMAND ${name})
    set_tests_properties(${name}/${shard} PROPERTIES TIMEOUT 1500 COST ${shards} LABELS "${labels}"
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${shard};GTEST_SHUFFLE=1;GTEST_BRIEF=1")
  endforeach()
endfunction()

# stagecoach_mpi_test(NAME RANKS FILTER)
# Runs those tests of a test program in RANKS processes, which mpirun starts, also as root and on few cores. What the
# tests say counts, and not what mpirun says: it calls it an error when a test of failures ends without MPI's blessing.
function(stagecoach_mpi_test name ranks filter)
  string(REGEX REPLACE "[^A-Za-z.].*" "" first ${filter})
  set(test "Processes/${ranks}/${name}/${first}")
  add_test(NAME ${test}
    COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${name}> --gtest_filter=${filter} --gtest_color=no)
  set_tests_properties(${test} PROPERTIES
    TIMEOUT 300
    COST ${ranks}  # before the short ones
    PASS_REGULAR_EXPRESSION "  PASSED  .* [1-9][0-9]* test"
    FAIL_REGULAR_EXPRESSION "  FAILED  "
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1")
endfunction()

# stagecoach_gloo_test(NAME RANKS FILTER)
# The same with processes that are started as torchrun does, and talk by Gloo.
function(stagecoach_gloo_test name ranks filter)
  string(REGEX REPLACE "[^A-Za-z.].*" "" first ${filter})
  set(test "Gloo/${ranks}/${name}/${first}")
  add_test(NAME ${test}
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/start_ranks.sh ${ranks} $<TARGET_FILE:${name}> --gtest_filter=${filter} --gtest_color=no)
  set_tests_properties(${test} PROPERTIES TIMEOUT 300 COST ${ranks})
endfunction()
