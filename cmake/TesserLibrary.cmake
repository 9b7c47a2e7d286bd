# tesser_library(NAME [SOURCES ...] [USES ...])
#
# One library a folder of src/. Headers are included as "folder/header.h". USES names the folders this one may include; the table of
# docs/architecture.md says which are allowed, and ./x lint checks the includes against it.
function(tesser_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  add_library(tesser_${name} STATIC ${ARG_SOURCES})
  add_library(tesser::${name} ALIAS tesser_${name})
  target_include_directories(tesser_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  foreach(used ${ARG_USES})
    target_link_libraries(tesser_${name} PUBLIC tesser_${used})
  endforeach()
endfunction()

# GoogleTest's headers are read once for all tests. Clang is strict about what may share them, and only builds fuzz targets here.
function(tesser_test_headers)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/test_headers.cc CONTENT "int main() {}\n")
  add_executable(tesser_test_headers ${CMAKE_CURRENT_BINARY_DIR}/test_headers.cc)
  target_link_libraries(tesser_test_headers PRIVATE GTest::gtest GTest::gmock)
  target_compile_definitions(tesser_test_headers PRIVATE TESSER_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(tesser_test_headers PRIVATE $<$<CONFIG:Release>:-O1>)
  target_precompile_headers(tesser_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <map> <string> <thread> <vector>)
endfunction()

# tesser_test(NAME SOURCES ... USES ...): one GoogleTest binary a folder of tests/.
function(tesser_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  add_executable(${name}_test ${ARG_SOURCES})
  foreach(used ${ARG_USES})
    target_link_libraries(${name}_test PRIVATE tesser_${used})
  endforeach()
  target_link_libraries(${name}_test PRIVATE GTest::gtest_main GTest::gmock)
  target_compile_definitions(${name}_test PRIVATE TESSER_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # Tests compile in less time; what they test is built as users run it.
  target_compile_options(${name}_test PRIVATE $<$<CONFIG:Release>:-O1>)
  if(TARGET tesser_test_headers)
    target_precompile_headers(${name}_test REUSE_FROM tesser_test_headers)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test)
endfunction()
