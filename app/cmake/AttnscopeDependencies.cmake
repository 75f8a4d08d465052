# Finds what the headless half needs: libtorch, fmt, CLI11, nlohmann-json, libarchive and zstd where
# they are; GoogleTest, Google Benchmark and RapidCheck where tests are built. Each is looked for as
# a CMake package, then as bare headers and libraries, so that ATTNSCOPE_DEPS may be a folder with
# nothing but include/ and lib/. All that is missing is reported at once, one line each, by
# attnscope_require_all().
#
# Targets: fmt::fmt, CLI11::CLI11, nlohmann_json::nlohmann_json, attnscope::archive and
# attnscope::zstd (maybe), GTest::gtest_main, benchmark::benchmark, rapidcheck. libtorch is in
# TORCH_LIBRARIES, for reference/ alone.
if(ATTNSCOPE_DEPS)
  list(PREPEND CMAKE_PREFIX_PATH "${ATTNSCOPE_DEPS}" "${ATTNSCOPE_DEPS}/libtorch")
endif()
include(AttnscopeTorch)

set(attnscope_missing "")
# Notes a missing dependency: what, the Debian and Ubuntu package, what else helps.
function(attnscope_need found what package)
  if(NOT ${found})
    set(line "attnscope: missing ${what}: install ${package}${ARGN}")
    set(attnscope_missing "${attnscope_missing}\n  ${line}" PARENT_SCOPE)
  endif()
endfunction()

# An imported library from a header and, unless header-only, a library file.
function(attnscope_import target header)
  string(MAKE_C_IDENTIFIER "attnscope_${target}" id)
  find_path(${id}_INCLUDE ${header})
  mark_as_advanced(${id}_INCLUDE)
  if(NOT ${id}_INCLUDE)
    return()
  endif()
  if(ARGN)
    find_library(${id}_LIBRARY ${ARGN})
    mark_as_advanced(${id}_LIBRARY)
    if(NOT ${id}_LIBRARY)
      return()
    endif()
  endif()
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} INTERFACE "${${id}_INCLUDE}")
  if(ARGN)
    target_link_libraries(${target} INTERFACE "${${id}_LIBRARY}")
  endif()
endfunction()

# Package, target, header, library names of the fallback.
function(attnscope_find package target header)
  find_package(${package} QUIET)
  if(NOT TARGET ${target})
    attnscope_import(${target} ${header} ${ARGN})
  endif()
  set(attnscope_has_${package} FALSE PARENT_SCOPE)
  if(TARGET ${target})
    set(attnscope_has_${package} TRUE PARENT_SCOPE)
  endif()
endfunction()

find_package(Threads REQUIRED)
attnscope_find(fmt fmt::fmt fmt/format.h fmt)
attnscope_need(attnscope_has_fmt fmt libfmt-dev)
attnscope_find(CLI11 CLI11::CLI11 CLI/CLI.hpp)
attnscope_need(attnscope_has_CLI11 CLI11 libcli11-dev)
attnscope_find(nlohmann_json nlohmann_json::nlohmann_json nlohmann/json.hpp)
attnscope_need(attnscope_has_nlohmann_json nlohmann-json nlohmann-json3-dev)
# For packed captures; nothing fails without them.
attnscope_import(attnscope::archive archive.h archive)
attnscope_import(attnscope::zstd zstd.h zstd)
attnscope_find_torch(attnscope_has_torch attnscope_torch_problem)
attnscope_need(attnscope_has_torch libtorch libtorch-dev
  " or set CMAKE_PREFIX_PATH to a CPU build of libtorch${attnscope_torch_problem}")

if(ATTNSCOPE_TESTS)
  find_package(GTest QUIET)
  if(NOT TARGET GTest::gtest_main AND EXISTS /usr/src/googletest/CMakeLists.txt)
    set(INSTALL_GTEST OFF)
    add_subdirectory(/usr/src/googletest "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL SYSTEM)
    if(NOT TARGET GTest::gtest_main)
      add_library(GTest::gtest_main ALIAS gtest_main)
    endif()
  endif()
  if(NOT TARGET GTest::gtest_main)
    attnscope_import(attnscope_gtest gtest/gtest.h gtest)
    attnscope_import(GTest::gtest_main gtest/gtest.h gtest_main)
    if(TARGET attnscope_gtest AND TARGET GTest::gtest_main)
      target_link_libraries(GTest::gtest_main INTERFACE attnscope_gtest Threads::Threads)
    endif()
  endif()
  attnscope_need("TARGET;GTest::gtest_main" GoogleTest libgtest-dev " or set ATTNSCOPE_TESTS=OFF")
  attnscope_find(benchmark benchmark::benchmark benchmark/benchmark.h benchmark)
  attnscope_need(attnscope_has_benchmark "Google Benchmark" libbenchmark-dev
    " or set ATTNSCOPE_TESTS=OFF")
  attnscope_find(rapidcheck rapidcheck rapidcheck.h rapidcheck)
  attnscope_need(attnscope_has_rapidcheck RapidCheck librapidcheck-dev
    " or set ATTNSCOPE_TESTS=OFF")
endif()

# Ends the configuration if something was not found.
function(attnscope_require_all)
  if(attnscope_missing)
    message(FATAL_ERROR "Not all dependencies were found.${attnscope_missing}\n"
      "On Debian and Ubuntu, ./attnscope installs them. Elsewhere, set CMAKE_PREFIX_PATH or "
      "ATTNSCOPE_DEPS to where they are.")
  endif()
endfunction()
