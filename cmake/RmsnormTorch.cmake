# The libtorch inside a PyTorch package, as the target rmsnorm::libtorch. find_package(Torch) is not used: of a CUDA
# build it asks for the CUDA toolkit, and linking torch_cpu and c10 alone needs none.
#
#   RMSNORM_TORCH_ROOT   the folder of the package: python3 -c 'import torch; print(torch.__path__[0])'
set(RMSNORM_TORCH_ROOT "" CACHE PATH "Folder of a PyTorch package (or of libtorch), for the lab")

find_path(RMSNORM_TORCH_INCLUDE torch/library.h PATHS "${RMSNORM_TORCH_ROOT}/include" NO_DEFAULT_PATH)
find_library(RMSNORM_TORCH_CPU torch_cpu PATHS "${RMSNORM_TORCH_ROOT}/lib" NO_DEFAULT_PATH)
find_library(RMSNORM_C10 c10 PATHS "${RMSNORM_TORCH_ROOT}/lib" NO_DEFAULT_PATH)
if(NOT RMSNORM_TORCH_INCLUDE OR NOT RMSNORM_TORCH_CPU OR NOT RMSNORM_C10)
  message(FATAL_ERROR "RMSNORM_TORCH_ROOT is \"${RMSNORM_TORCH_ROOT}\"; it must be the folder of a PyTorch package, "
                      "with include/torch and lib/libtorch_cpu.so")
endif()

# The symbols of PyTorch's parallel_for must be those of the runtime that PyTorch has loaded, or the process would have
# two: its own copy where the package carries one, else the system's.
file(GLOB torch_openmp "${RMSNORM_TORCH_ROOT}/lib/libgomp*.so*" "${RMSNORM_TORCH_ROOT}/../torch.libs/libgomp*.so*")
if(NOT torch_openmp)
  set(torch_openmp gomp)
endif()
file(STRINGS "${RMSNORM_TORCH_ROOT}/share/cmake/Torch/TorchConfig.cmake" torch_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")

add_library(rmsnorm_libtorch INTERFACE)
add_library(rmsnorm::libtorch ALIAS rmsnorm_libtorch)
target_include_directories(rmsnorm_libtorch SYSTEM INTERFACE
  "${RMSNORM_TORCH_INCLUDE}" "${RMSNORM_TORCH_INCLUDE}/torch/csrc/api/include")
# clang's own OpenMP calls a runtime of its own, the second one of the process; for PyTorch's it makes no threads, so
# that what it compiles of the operators runs on one.
target_compile_options(rmsnorm_libtorch INTERFACE $<IF:$<CXX_COMPILER_ID:Clang>,-fopenmp=libgomp,-fopenmp>)
target_compile_definitions(rmsnorm_libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=$<IF:$<BOOL:${torch_abi}>,0,1>)
# The package may bring headers of fmt, which then hide the system's and are of another version than its library.
target_compile_definitions(rmsnorm_libtorch INTERFACE FMT_HEADER_ONLY=1)
target_link_libraries(rmsnorm_libtorch INTERFACE "${RMSNORM_TORCH_CPU}" "${RMSNORM_C10}" ${torch_openmp})
target_link_options(rmsnorm_libtorch INTERFACE "LINKER:-rpath-link,${RMSNORM_TORCH_ROOT}/lib")
