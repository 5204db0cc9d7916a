# Found by find_package(sluice); defines the target sluice::sluice.
include(CMakeFindDependencyMacro)
find_dependency(fmt)
find_dependency(nlohmann_json)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/sluiceTargets.cmake)
