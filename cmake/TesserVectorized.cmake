# tesser_vectorized(NAME SOURCES ...): adds sources to the library of a folder, compiled once for each instruction set.
#
# A source sees TESSER_LOOPS, the name of the set, and defines its functions in a namespace of that name. It includes no
# header with inline functions of external linkage: the linker would keep one copy of such a function, perhaps one this
# processor cannot run. The options keep the numbers the same for all sets: no contraction that the source does not
# write, and no reordering.
function(tesser_vectorized name)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  set(sets portable)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND sets avx2 avx512)
  endif()
  set(options_portable)
  set(options_avx2 -mavx2 -mfma)
  set(options_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512)
  foreach(set ${sets})
    set(object tesser_${name}_${set})
    add_library(${object} OBJECT ${ARG_SOURCES})
    target_include_directories(${object} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_definitions(${object} PRIVATE TESSER_LOOPS=${set})
    # Optimised in every build type: these loops are nothing without it.
    target_compile_options(${object} PRIVATE -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math ${options_${set}}
      # GCC's own headers define the undefined vectors of AVX-512 intrinsics by themselves.
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_sources(tesser_${name} PRIVATE $<TARGET_OBJECTS:${object}>)
  endforeach()
endfunction()
