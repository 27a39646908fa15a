# What `cmake --install` lays down: libraries, headers, and how CMake and pkg-config find them.
include(CMakePackageConfigHelpers)

set(libraries "")
foreach(kind shared static)
  if(TARGET rmsnorm_${kind})
    list(APPEND libraries rmsnorm_${kind})
  endif()
endforeach()

install(TARGETS ${libraries} EXPORT rmsnorm_targets)
install(DIRECTORY include/rmsnorm DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/rmsnorm")
install(EXPORT rmsnorm_targets NAMESPACE rmsnorm:: DESTINATION "${package_dir}" FILE rmsnormTargets.cmake)
configure_package_config_file(cmake/rmsnormConfig.cmake.in rmsnormConfig.cmake INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(rmsnormConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/rmsnormConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/rmsnormConfigVersion.cmake"
              cmake/Findpthreadpool.cmake DESTINATION "${package_dir}")

# Paths relative to the .pc file, so that an installed tree can be moved; an absolute libdir or includedir stays.
file(RELATIVE_PATH pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
foreach(dir LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(pc_${dir} "${CMAKE_INSTALL_${dir}}")
  else()
    set(pc_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  set(pc_prefix "\${pcfiledir}/${pc_prefix}")
endif()
configure_file(cmake/rmsnorm.pc.in rmsnorm.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/rmsnorm.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
