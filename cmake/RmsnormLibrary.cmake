# The shared and the static library, from the same objects: rmsnorm::shared, rmsnorm::static, and rmsnorm::rmsnorm for
# the one that BUILD_SHARED_LIBS asks for. Both are called librmsnorm; the command line owns the target name rmsnorm.
include(GNUInstallDirs)

option(BUILD_SHARED_LIBS "rmsnorm::rmsnorm is the shared library" ON)
option(RMSNORM_SHARED "Build the shared library" ON)
option(RMSNORM_STATIC "Build the static library (tests and tools link it)" ON)

set(objects $<TARGET_OBJECTS:rmsnorm_objects> ${RMSNORM_KERNEL_OBJECTS})

function(rmsnorm_library kind)
  string(TOLOWER ${kind} name)
  add_library(rmsnorm_${name} ${kind} ${objects})
  add_library(rmsnorm::${name} ALIAS rmsnorm_${name})
  set_target_properties(rmsnorm_${name} PROPERTIES
    OUTPUT_NAME rmsnorm
    EXPORT_NAME ${name}
    LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}) # before 1.0 a minor version may break the ABI
  target_include_directories(rmsnorm_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(rmsnorm_${name} INTERFACE cxx_std_20)
  target_link_libraries(rmsnorm_${name} PRIVATE pthreadpool::pthreadpool Threads::Threads)
endfunction()

if(RMSNORM_SHARED)
  rmsnorm_library(SHARED)
  set(map "${PROJECT_SOURCE_DIR}/src/rmsnorm.map")
  target_link_options(rmsnorm_shared PRIVATE "LINKER:--version-script=${map}")
  set_target_properties(rmsnorm_shared PROPERTIES LINK_DEPENDS "${map}")
endif()
if(RMSNORM_STATIC)
  rmsnorm_library(STATIC)
endif()
if(RMSNORM_SHARED AND (BUILD_SHARED_LIBS OR NOT RMSNORM_STATIC))
  add_library(rmsnorm::rmsnorm ALIAS rmsnorm_shared)
else()
  add_library(rmsnorm::rmsnorm ALIAS rmsnorm_static)
endif()
