# tesser_find_torch(): the imported target tesser_torch, PyTorch's processor libraries and headers as the Python TESSER_PYTHON has them.
#
# PyTorch's own TorchConfig.cmake is not used: that of the CUDA build, which is what PyPI serves for Linux, refuses to be found without a CUDA toolkit,
# although the libraries named here load without one.
function(tesser_find_torch)
  set(TESSER_PYTHON "" CACHE FILEPATH "Python whose PyTorch the runtime is built against; .venv's or python3 when empty")
  if(NOT TESSER_PYTHON)
    set(python python3)
    if(EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
      set(python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
    endif()
    set_property(CACHE TESSER_PYTHON PROPERTY VALUE ${python})
  endif()
  execute_process(
    COMMAND ${TESSER_PYTHON} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0], end='')"
    OUTPUT_VARIABLE torch RESULT_VARIABLE missing ERROR_QUIET)
  if(missing)
    message(FATAL_ERROR "${TESSER_PYTHON} has no torch; run ./x setup, or give -DTESSER_PYTHON=... (or -DTESSER_RUNTIME=OFF)")
  endif()
  # The libraries of CUDA that libtorch_cpu.so names lie beside it or in nvidia/ and are found by its own run path, not by the linker.
  find_library(torch_openmp NAMES libgomp.so.1 PATHS ${torch}/lib NO_DEFAULT_PATH NO_CACHE REQUIRED)
  add_library(tesser_torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(tesser_torch SYSTEM INTERFACE ${torch}/include ${torch}/include/torch/csrc/api/include)
  target_link_libraries(tesser_torch INTERFACE ${torch}/lib/libtorch_cpu.so ${torch}/lib/libc10.so ${torch_openmp})
  target_link_options(tesser_torch INTERFACE LINKER:--allow-shlib-undefined LINKER:-rpath,${torch}/lib)
endfunction()
