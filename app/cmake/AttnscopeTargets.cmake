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
  # With -O3 also about what an empty std::optional would free.
  string(TOUPPER "${CMAKE_BUILD_TYPE}" attnscope_build_type)
  if("${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${attnscope_build_type}}" MATCHES "-O3")
    list(APPEND attnscope_flags -Wno-maybe-uninitialized)
  endif()
endif()
set(attnscope_cxx_flags -Wnon-virtual-dtor -Woverloaded-virtual)
# g++ 13 and later take what a function returns for a part of its argument, whatever it is. In
# copies of vectors, and where one is freed, they see accesses that cannot be.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  list(APPEND attnscope_cxx_flags -Wno-dangling-reference -Wno-array-bounds
    -Wno-stringop-overflow -Wno-free-nonheap-object)
endif()
# g++ goes through its memory again and again from 128 MB on, which takes a tenth of the time of a
# batch. With 2 GB a core it may let that be until there is a gigabyte; what it makes is the same.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  cmake_host_system_information(RESULT attnscope_megabytes QUERY TOTAL_PHYSICAL_MEMORY)
  cmake_host_system_information(RESULT attnscope_cores QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR attnscope_needed "${attnscope_cores} * 2000")
  if(attnscope_megabytes GREATER_EQUAL attnscope_needed)
    list(APPEND attnscope_flags --param=ggc-min-heapsize=1000000)
  endif()
endif()
# AUTO: a compiler that nobody tried may warn of more. ./attnscope test says which it is.
set(attnscope_compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
if(ATTNSCOPE_WERROR STREQUAL "AUTO")
  set(ATTNSCOPE_WERROR OFF)
  if(attnscope_compiler MATCHES "^(GNU 1[23]|Clang 16)\\.")
    set(ATTNSCOPE_WERROR ON)
  endif()
endif()
if(ATTNSCOPE_WERROR)
  list(APPEND attnscope_flags -Werror)
endif()
message(STATUS "Warnings are errors: ${ATTNSCOPE_WERROR} (${attnscope_compiler})")
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
  "$<$<COMPILE_LANGUAGE:CXX>:${attnscope_cxx_flags}>")

# A library of one layer, or with OBJECT a part of one that has compiler flags of its own. UNITY:
# with ATTNSCOPE_UNITY its sources are compiled in batches, since most of the time of each goes into
# the same headers and templates. The presets dev and tidy take each on its own, so that a missing
# include shows. BATCHES: in how many at least, of a library that is built last, where a single one
# would leave other cores without work.
function(attnscope_library name)
  cmake_parse_arguments(ARG "UNITY;OBJECT" "BATCHES" "SOURCES;LINK;ALONE" ${ARGN})
  set(kind STATIC)
  if(ARG_OBJECT)
    set(kind OBJECT)
  endif()
  add_library(${name} ${kind} ${ARG_SOURCES})
  add_library(attnscope::${name} ALIAS ${name})
  target_link_libraries(${name} PUBLIC attnscope_options ${ARG_LINK})
  if(ARG_UNITY AND ATTNSCOPE_UNITY)
    attnscope_batches(${name} SOURCES ${ARG_SOURCES} ALONE ${ARG_ALONE} BATCHES ${ARG_BATCHES})
  endif()
endfunction()

# Batches of up to 36 files, all of about one size, the files of each folder named in ALONE by
# themselves: tests/bugs exchanges the objects of whole folders. Headers of ours and templates that
# all use are paid once a batch. A new file moves others to another batch, so file-local names must
# differ within the whole target.
function(attnscope_batches name)
  cmake_parse_arguments(ARG "" "BATCHES" "SOURCES;ALONE" ${ARGN})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP
                        ATTNSCOPE_ALONE "${ARG_ALONE}")
  set(folders "")
  foreach(source ${ARG_SOURCES})
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME folder)
    if(NOT folder IN_LIST ARG_ALONE)
      set(folder batch)
    endif()
    list(APPEND folders ${folder})
    list(APPEND of_${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    list(LENGTH of_${folder} count)
    math(EXPR batches "(${count} + 35) / 36")
    if(ARG_BATCHES AND batches LESS ARG_BATCHES)
      set(batches ${ARG_BATCHES})
    endif()
    math(EXPR most "(${count} + ${batches} - 1) / ${batches}")
    set(place 0)
    foreach(source ${of_${folder}})
      math(EXPR batch "${place} / ${most}")
      math(EXPR place "${place} + 1")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${batch})
    endforeach()
  endforeach()
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
