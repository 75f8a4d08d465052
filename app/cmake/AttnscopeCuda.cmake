# Whether the CUDA lane is built: sets ATTNSCOPE_HAS_CUDA, and enables the language.
#
# AUTO asks for nvcc and for a GPU, so that a machine without one does not spend minutes on kernels
# it cannot run; ON builds them for another machine. The binary needs neither a driver nor CUDA's
# libraries to start.
set(ATTNSCOPE_CUDA AUTO CACHE STRING "CUDA lane: AUTO, ON or OFF")
set_property(CACHE ATTNSCOPE_CUDA PROPERTY STRINGS AUTO ON OFF)
option(ATTNSCOPE_CUDA_CHECKED "Kernels stop at an index out of range" OFF)
set(ATTNSCOPE_HAS_CUDA FALSE)

if(ATTNSCOPE_CUDA STREQUAL "OFF")
  message(STATUS "CUDA lane: no (ATTNSCOPE_CUDA is OFF)")
  return()
elseif(NOT ATTNSCOPE_CUDA MATCHES "^(AUTO|ON)$")
  message(FATAL_ERROR "ATTNSCOPE_CUDA is '${ATTNSCOPE_CUDA}'. Allowed: AUTO, ON, OFF")
endif()

file(GLOB attnscope_gpus /dev/nvidia[0-9]* /dev/dxg)
if(ATTNSCOPE_CUDA STREQUAL "AUTO" AND NOT attnscope_gpus)
  message(STATUS "CUDA lane: no (no GPU on this machine; ATTNSCOPE_CUDA=ON builds it anyway)")
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  find_program(attnscope_nvcc nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
               PATH_SUFFIXES bin)
  mark_as_advanced(attnscope_nvcc)
  if(attnscope_nvcc)
    set(CMAKE_CUDA_COMPILER "${attnscope_nvcc}")
  endif()
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  if(ATTNSCOPE_CUDA STREQUAL "ON")
    string(APPEND attnscope_missing "\n  attnscope: missing nvcc: install the CUDA toolkit 12.8 "
           "or newer, set CUDA_HOME, or set ATTNSCOPE_CUDA=OFF")
  endif()
  message(STATUS "CUDA lane: no (nvcc was not found)")
  return()
endif()
# sm_80 runs on every GPU since; 90a for Hopper's own instructions; PTX for what comes after.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90a-real;90-virtual")
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc takes C++20.
foreach(kind IN ITEMS STANDARD EXTENSION)
  if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
    set(CMAKE_CUDA20_${kind}_COMPILE_OPTION "-std=c++20")
  endif()
endforeach()
find_package(CUDAToolkit REQUIRED)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
  message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old: the CUDA lane needs 12.8 or "
    "newer. Set CUDA_HOME to a newer toolkit, or ATTNSCOPE_CUDA=OFF")
endif()
if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
set(ATTNSCOPE_HAS_CUDA TRUE)
message(STATUS "CUDA lane: yes (nvcc ${CMAKE_CUDA_COMPILER_VERSION}, ${CMAKE_CUDA_ARCHITECTURES})")
