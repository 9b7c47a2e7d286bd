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
  add_test(NAME ${name} COMMAND ${name}_test)
endfunction()
