# cmake --install: headers, library, and the package that find_package(sluice) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS sluice EXPORT sluice_targets)
foreach(folder engine kernels autograd ops models)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice
          FILES_MATCHING PATTERN "*.h")
endforeach()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
install(EXPORT sluice_targets NAMESPACE sluice:: FILE sluiceTargets.cmake DESTINATION ${package})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/sluiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/sluiceConfig.cmake
              ${PROJECT_BINARY_DIR}/sluiceConfigVersion.cmake DESTINATION ${package})
