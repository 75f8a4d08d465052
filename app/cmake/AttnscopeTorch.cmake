# libtorch for reference/: sets TORCH_LIBRARIES to what reference/ links, and Torch_VERSION. The
# search runs inside a function so that the flags and variables that Torch's package sets stay out
# of other targets.
#
# Works with Debian's 1.13 and with PyTorch 2.x. A CUDA build of PyTorch is used for its CPU half
# without asking for a CUDA toolkit: its own package file insists on one, so the two libraries are
# then imported by hand.

# Where TorchConfig.cmake is that find_package would use; empty when there is none.
function(attnscope_torch_config out)
  set(hints ${Torch_DIR} $ENV{Torch_DIR})
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    list(APPEND hints "${prefix}/Torch" "${prefix}/share/cmake/Torch" "${prefix}/lib/cmake/Torch")
  endforeach()
  string(REPLACE ":" ";" prefixes "$ENV{CMAKE_PREFIX_PATH}")
  foreach(prefix IN LISTS prefixes)
    list(APPEND hints "${prefix}/Torch" "${prefix}/share/cmake/Torch" "${prefix}/lib/cmake/Torch")
  endforeach()
  find_file(config TorchConfig.cmake HINTS ${hints} PATHS ${CMAKE_SYSTEM_PREFIX_PATH} NO_CACHE
            PATH_SUFFIXES share/cmake/Torch lib/cmake/Torch
                          "lib/${CMAKE_LIBRARY_ARCHITECTURE}/cmake/Torch")
  set(${out} "" PARENT_SCOPE)
  if(config)
    set(${out} "${config}" PARENT_SCOPE)
  endif()
endfunction()

# The CPU half of the libtorch that lies at `root`.
function(attnscope_import_torch_cpu root)
  set(libraries "")
  foreach(name IN ITEMS torch_cpu c10)
    list(APPEND libraries "${root}/lib/lib${name}.so")
  endforeach()
  add_library(attnscope_torch_cpu INTERFACE IMPORTED GLOBAL)
  target_include_directories(attnscope_torch_cpu INTERFACE
    "${root}/include" "${root}/include/torch/csrc/api/include")
  # PyTorch's wheels export functions of the C++ library that were linked into them, std::filesystem
  # above all: the C++ library goes first, so that the program and the library itself use one copy.
  set(cxx_library "")
  if("stdc++" IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
    set(cxx_library -Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state)
  endif()
  # What libtorch_cpu itself needs of CUDA it finds by its own run path when it is loaded.
  target_link_libraries(attnscope_torch_cpu INTERFACE ${cxx_library} ${libraries}
    -Wl,--unresolved-symbols=ignore-in-shared-libs)
endfunction()

# found_out: TRUE when usable. problem_out: why a libtorch that is there cannot be used.
function(attnscope_find_torch found_out problem_out)
  set(${found_out} FALSE PARENT_SCOPE)
  set(${problem_out} "" PARENT_SCOPE)
  attnscope_torch_config(config)
  if(NOT config)
    return()
  endif()
  file(STRINGS "${config}" old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
  if(old_abi)
    set(${problem_out} " (${config} was built with the old C++ ABI: use a cxx11-ABI build)"
        PARENT_SCOPE)
    return()
  endif()
  get_filename_component(root "${config}" DIRECTORY)
  get_filename_component(root "${root}/../../.." ABSOLUTE)
  # A CUDA build, or what the launcher keeps of one.
  if(EXISTS "${root}/lib/libtorch_cuda.so" OR
     (EXISTS "${root}/lib/libtorch_cpu.so" AND NOT EXISTS "${root}/lib/libtorch.so"))
    attnscope_import_torch_cpu("${root}")
    set(TORCH_LIBRARIES attnscope_torch_cpu)
    set(numbers "")
    foreach(header IN ITEMS csrc/api/include/torch/version.h headeronly/version.h)
      if(EXISTS "${root}/include/torch/${header}")
        file(STRINGS "${root}/include/torch/${header}" numbers
             REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]")
      endif()
    endforeach()
    string(REGEX MATCHALL "[0-9]+" numbers "${numbers}")
    list(JOIN numbers "." Torch_VERSION)
    message(STATUS "libtorch ${Torch_VERSION} (CPU half of a CUDA build): ${root}")
  else()
    get_filename_component(Torch_DIR "${config}" DIRECTORY)
    find_package(Torch QUIET PATHS "${Torch_DIR}" NO_DEFAULT_PATH)
    if(NOT TORCH_FOUND AND NOT Torch_FOUND)
      set(${problem_out} " (${config} is there but incomplete)" PARENT_SCOPE)
      return()
    endif()
    message(STATUS "libtorch ${Torch_VERSION}: ${Torch_DIR}")
  endif()
  set(TORCH_LIBRARIES "${TORCH_LIBRARIES}" PARENT_SCOPE)
  set(Torch_VERSION "${Torch_VERSION}" PARENT_SCOPE)
  set(${found_out} TRUE PARENT_SCOPE)
endfunction()
