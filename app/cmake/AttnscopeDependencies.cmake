# Finds what the headless half needs: libtorch, fmt, CLI11, nlohmann-json, zstd; GoogleTest and Google
# Benchmark for tests. ATTNSCOPE_DEPS points to a folder with include/ and lib/ (or CMake packages)
# for machines without a package manager.
if(ATTNSCOPE_DEPS)
  list(PREPEND CMAKE_PREFIX_PATH "${ATTNSCOPE_DEPS}")
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Torch REQUIRED)
