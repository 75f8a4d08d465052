# What every target of ours shares: warnings, sanitizers, include root.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  # What uses precompiled headers is cached only with these.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${CCACHE_PROGRAM})
endif()

add_library(attnscope_options INTERFACE)
target_include_directories(attnscope_options INTERFACE ${CMAKE_SOURCE_DIR})
# -ffp-contract=off: a fused multiply-add appears only where the code asks for one, so that the same
# SIMD level gives the same bytes with every compiler.
set(attnscope_flags -Wall -Wextra -Wshadow -ffp-contract=off)
# g++ 12 warns wrongly about joined strings (GCC bug 105651); the address sanitizer watches instead.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND attnscope_flags -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
endif()
if(ATTNSCOPE_WERROR)
  list(APPEND attnscope_flags -Werror)
endif()
if(ATTNSCOPE_SANITIZE)
  list(APPEND attnscope_flags -fsanitize=${ATTNSCOPE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(attnscope_options INTERFACE -fsanitize=${ATTNSCOPE_SANITIZE})
endif()

if(ATTNSCOPE_FUZZ)
  list(APPEND attnscope_flags -fsanitize=fuzzer-no-link)
endif()
# Not for nvcc, which has flags of its own (kernels/cuda).
target_compile_options(attnscope_options INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:${attnscope_flags}>"
  "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>")

# A library of one layer: all sources below the current folder unless listed. UNITY: with
# ATTNSCOPE_UNITY its sources are compiled in batches, since most of the time of each goes into the
# same headers and templates. The presets dev, asan and tsan compile each on its own, so that a
# missing include shows.
function(attnscope_library name)
  cmake_parse_arguments(ARG "UNITY" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  add_library(attnscope::${name} ALIAS ${name})
  target_link_libraries(${name} PUBLIC attnscope_options ${ARG_LINK})
  if(ARG_UNITY AND ATTNSCOPE_UNITY)
    attnscope_batches(${name})
  endif()
endfunction()

# Batches of up to sixteen files, whatever their folders. A new file moves others to another batch,
# so file-local names must differ within the whole target.
function(attnscope_batches name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH
                        UNITY_BUILD_BATCH_SIZE 16)
endfunction()

# The libraries' headers that most files of a target include, parsed once: reading them was four
# fifths of the time of most files. Only headers that are not ours, so that an edit recompiles no
# more than it must; and every header still includes what it uses (test repo.all_headers).
set(attnscope_std_headers <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <deque>
    <filesystem> <fstream> <functional> <limits> <map> <memory> <numeric> <optional> <set> <span>
    <sstream> <string> <string_view> <unordered_map> <utility> <variant> <vector>)
function(attnscope_precompile name)
  list(TRANSFORM ARGN REPLACE "^(.+)$" "<\\1>")
  target_precompile_headers(${name} PRIVATE ${attnscope_std_headers} ${ARGN})
endfunction()
