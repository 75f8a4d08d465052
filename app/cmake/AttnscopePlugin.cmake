# The C interface of kernels as one header, include/attnscope_plugin.h of the build folder, made of
# the headers in kernels/; and what `cmake --install` puts where.
set(plugin_parts params/dtype.h params/tensor.h params/head.h params/numeric_rules.h
    params/op_ids.h params/lane.h params/step_params.h params/attention_params.h
    params/compressor_params.h params/dense_params.h params/draft_params.h params/indexer_params.h
    params/helper_params.h params/paged_params.h params/mla_params.h
    params/offload_params.h
    params/row_format.h layout/records.h layout/mla_rows.h params/plugin.h)
set(plugin_header "/* attnscope ${PROJECT_VERSION}: what a plugin needs. Made by the build. */\n")
foreach(part ${plugin_parts})
  set(file "${CMAKE_SOURCE_DIR}/kernels/${part}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(READ "${file}" text)
  string(REGEX REPLACE "#include \"kernels/[^\"]*\"\n" "" text "${text}")
  string(APPEND plugin_header "\n${text}")
endforeach()
set(ATTNSCOPE_PLUGIN_INCLUDE "${CMAKE_BINARY_DIR}/include")
set(old "")
if(EXISTS "${ATTNSCOPE_PLUGIN_INCLUDE}/attnscope_plugin.h")
  file(READ "${ATTNSCOPE_PLUGIN_INCLUDE}/attnscope_plugin.h" old)
endif()
if(NOT "${old}" STREQUAL "${plugin_header}")
  file(WRITE "${ATTNSCOPE_PLUGIN_INCLUDE}/attnscope_plugin.h" "${plugin_header}")
endif()

# A shared library of kernels, compiled as a user's would be: this header and nothing else of ours.
function(attnscope_plugin name source)
  add_library(${name} MODULE ${source})
  target_include_directories(${name} PRIVATE "${ATTNSCOPE_PLUGIN_INCLUDE}")
  get_filename_component(kind ${source} LAST_EXT)
  if(NOT kind STREQUAL ".cu")
    target_compile_options(${name} PRIVATE -Wall -Wextra $<$<BOOL:${ATTNSCOPE_WERROR}>:-Werror>
                           $<$<COMPILE_LANGUAGE:C>:-pedantic>)
  endif()
  target_compile_definitions(${name} PRIVATE ${ARGN})
  target_link_libraries(${name} PRIVATE m)
endfunction()

install(FILES "${ATTNSCOPE_PLUGIN_INCLUDE}/attnscope_plugin.h" DESTINATION include)
