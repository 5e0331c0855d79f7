# stagecoach_test(NAME SOURCES … LIBRARIES … [LABELS …] [TIMEOUT seconds])
# One test program a floor. CTest runs every test of it by itself, in any order.
find_package(GTest REQUIRED)
include(GoogleTest)

function(stagecoach_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)  # against hangs only; no test measures time
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} stagecoach_test_support GTest::gtest GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()
