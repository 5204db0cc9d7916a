# Run by CTest: installs BUILD into WORK/prefix, then configures, builds and runs EXAMPLES there.
function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed:\n${output}")
  endif()
  message(STATUS "${what}: ok")
endfunction()

file(REMOVE_RECURSE ${WORK})
step("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
step("configure examples"
  ${CMAKE_COMMAND} -S ${EXAMPLES} -B ${WORK}/build -G Ninja
  -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Release)
step("build examples" ${CMAKE_COMMAND} --build ${WORK}/build)
step("test examples" ${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/build --output-on-failure)
