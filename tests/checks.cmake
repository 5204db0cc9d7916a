# Tests that look at the sources and objects instead of running code.
find_package(Python3 COMPONENTS Interpreter)

function(sluice_check name)
  add_test(NAME ${name} COMMAND ${ARGN} COMMAND_EXPAND_LISTS)
  set_tests_properties(${name} PROPERTIES LABELS fast SKIP_RETURN_CODE 77)
endfunction()

sluice_check(check_format ${PROJECT_SOURCE_DIR}/tools/check_format.sh ${PROJECT_SOURCE_DIR})
if(Python3_FOUND)
  sluice_check(check_includes
    ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/check_includes.py ${PROJECT_SOURCE_DIR})
  sluice_check(check_the_checks
    ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/tools/check_the_checks.py
    ${PROJECT_SOURCE_DIR}/tools)
  sluice_check(check_mutations
    ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/mutation/mutate.py
    --check ${PROJECT_SOURCE_DIR})
  # Sanitizers and -O0 leave inline functions out of line that an optimised build has inlined.
  if(TARGET sluice_kernels_avx2 AND SLUICE_SANITIZE STREQUAL "" AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    foreach(isa avx2 avx512)
      sluice_check(check_symbols_${isa}
        ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/check_symbols.py ${isa}
        $<TARGET_OBJECTS:sluice_kernels_${isa}>)
    endforeach()
  endif()
endif()

# Installs into a fresh folder and builds examples/ against nothing but that folder.
if(SLUICE_SANITIZE STREQUAL "" AND SLUICE_TOOLS)
  add_test(NAME install_and_examples
    COMMAND ${CMAKE_COMMAND}
      -DBUILD=${PROJECT_BINARY_DIR} -DEXAMPLES=${PROJECT_SOURCE_DIR}/examples
      -DWORK=${PROJECT_BINARY_DIR}/install_test -DCXX=${CMAKE_CXX_COMPILER}
      -P ${PROJECT_SOURCE_DIR}/tests/install_test.cmake)
  set_tests_properties(install_and_examples PROPERTIES LABELS slow TIMEOUT 300)
endif()

# Small faults put into a copy of the sources: each must turn a test red. The copy is built with all
# processors, hence alone.
if(Python3_FOUND AND SLUICE_SANITIZE STREQUAL "" AND CMAKE_GENERATOR STREQUAL "Ninja")
  add_test(NAME mutations
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/mutation/mutate.py
      run ${PROJECT_SOURCE_DIR} --build ${PROJECT_BINARY_DIR})
  set_tests_properties(mutations PROPERTIES LABELS nightly TIMEOUT 14400 RUN_SERIAL ON)
endif()
