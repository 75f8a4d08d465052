# The desktop app's libraries: Dear ImGui (docking), ImPlot and, for tests, imgui_test_engine, from
# the sources of the PyPI package imgui-bundle; GLFW, OpenGL, EGL and, where it is, X11 from the
# system.
#
# Sets ATTNSCOPE_HAS_GUI. Targets:
#   attnscope::ui_headers         what app/gui and app/panels compile against
#   attnscope::ui_stack           the libraries, for the program
#   attnscope::ui_stack_testable  the same with the hooks of the test engine, and the test engine
#   attnscope::ui_test_headers    headers of the test engine
set(ATTNSCOPE_GUI AUTO CACHE STRING "Desktop app: AUTO, ON or OFF")
set_property(CACHE ATTNSCOPE_GUI PROPERTY STRINGS AUTO ON OFF)
if(ATTNSCOPE_DEPS)
  set(attnscope_ui_default "${ATTNSCOPE_DEPS}/imgui-bundle")
else()
  set(attnscope_ui_default "${CMAKE_SOURCE_DIR}/build/deps/imgui-bundle")
endif()
set(ATTNSCOPE_UI_SOURCES "${attnscope_ui_default}" CACHE PATH
  "What the launcher keeps of imgui-bundle's source distribution")

# For the launcher too, which reads it from the cache.
set(ATTNSCOPE_HAS_GUI FALSE CACHE INTERNAL "Is the desktop app built?")
if(ATTNSCOPE_GUI STREQUAL "OFF")
  message(STATUS "GUI: no (ATTNSCOPE_GUI is OFF)")
  return()
elseif(NOT ATTNSCOPE_GUI MATCHES "^(AUTO|ON)$")
  message(FATAL_ERROR "ATTNSCOPE_GUI is '${ATTNSCOPE_GUI}'. Allowed: AUTO, ON, OFF")
endif()

set(attnscope_ui_missing "")
# Notes what the desktop app lacks: an error where it is asked for, its end where it is not.
function(attnscope_ui_need what advice)
  if(ATTNSCOPE_GUI STREQUAL "ON")
    set(line "attnscope: missing ${what}: ${advice}, or set ATTNSCOPE_GUI=OFF")
    set(attnscope_missing "${attnscope_missing}\n  ${line}" PARENT_SCOPE)
  endif()
  list(APPEND attnscope_ui_missing "no ${what}: ${advice}")
  set(attnscope_ui_missing "${attnscope_ui_missing}" PARENT_SCOPE)
endfunction()

set(attnscope_ui_imgui "${ATTNSCOPE_UI_SOURCES}/imgui/imgui")
set(attnscope_ui_implot "${ATTNSCOPE_UI_SOURCES}/implot/implot")
set(attnscope_ui_te
  "${ATTNSCOPE_UI_SOURCES}/imgui_test_engine/imgui_test_engine/imgui_test_engine")
find_package(glfw3 3.3 QUIET)
if(NOT TARGET glfw)
  attnscope_import(glfw GLFW/glfw3.h glfw glfw3)
endif()
set(OpenGL_GL_PREFERENCE GLVND)
find_package(OpenGL QUIET COMPONENTS OpenGL EGL)
if(NOT TARGET glfw)
  attnscope_ui_need("GLFW" "install libglfw3-dev")
endif()
if(NOT TARGET OpenGL::OpenGL OR NOT TARGET OpenGL::EGL)
  attnscope_ui_need("OpenGL and EGL" "install libgl-dev libopengl-dev libegl-dev")
endif()
# Windows are GLFW's, of whichever system it was built for. With X11 small parts of a picture need
# no swap.
find_package(X11 QUIET)
set(attnscope_ui_system "X11")
if(NOT TARGET X11::X11)
  set(attnscope_ui_system "no X11: windows by GLFW alone; with it, libx11-dev")
endif()
if(NOT EXISTS "${attnscope_ui_imgui}/imgui.cpp" OR NOT EXISTS "${attnscope_ui_implot}/implot.cpp")
  set(attnscope_ui_advice "./attnscope fetches them")
  if(ATTNSCOPE_DEPS)
    set(attnscope_ui_advice "copy build/deps/imgui-bundle of a build with network there")
  endif()
  attnscope_ui_need("sources of Dear ImGui in ${ATTNSCOPE_UI_SOURCES}" "${attnscope_ui_advice}")
endif()
if(attnscope_ui_missing)
  list(JOIN attnscope_ui_missing ", " attnscope_ui_missing)
  message(STATUS "GUI: no (${attnscope_ui_missing})")
  return()
endif()
set(ATTNSCOPE_HAS_GUI TRUE CACHE INTERNAL "Is the desktop app built?")
file(STRINGS "${attnscope_ui_imgui}/imgui.h" attnscope_ui_version
     REGEX "^#define IMGUI_VERSION +\"")
string(REGEX MATCH "[0-9][0-9.]*" attnscope_ui_version "${attnscope_ui_version}")
message(STATUS
  "GUI: yes (imgui ${attnscope_ui_version}, GLFW ${glfw3_VERSION}, ${attnscope_ui_system})")

add_library(attnscope_ui_headers INTERFACE)
add_library(attnscope::ui_headers ALIAS attnscope_ui_headers)
target_include_directories(attnscope_ui_headers SYSTEM INTERFACE "${attnscope_ui_imgui}"
  "${attnscope_ui_imgui}/backends" "${attnscope_ui_implot}" "${ATTNSCOPE_UI_SOURCES}/hello_imgui")
target_include_directories(attnscope_ui_headers INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(attnscope_ui_headers INTERFACE
  IMGUI_USER_CONFIG="app/gui/imgui_config.h" GLFW_INCLUDE_NONE)
target_link_libraries(attnscope_ui_headers INTERFACE glfw OpenGL::OpenGL OpenGL::EGL)
if(TARGET X11::X11)
  target_link_libraries(attnscope_ui_headers INTERFACE X11::X11)
endif()

set(attnscope_ui_files
  "${attnscope_ui_imgui}/imgui.cpp" "${attnscope_ui_imgui}/imgui_draw.cpp"
  "${attnscope_ui_imgui}/imgui_tables.cpp" "${attnscope_ui_imgui}/imgui_widgets.cpp"
  "${attnscope_ui_imgui}/imgui_demo.cpp" "${attnscope_ui_imgui}/imgui_stacklayout.cpp"
  "${attnscope_ui_imgui}/backends/imgui_impl_opengl3.cpp"
  "${attnscope_ui_imgui}/backends/imgui_impl_glfw.cpp"
  "${attnscope_ui_implot}/implot.cpp" "${attnscope_ui_implot}/implot_items.cpp")

# Others' code: without our warnings. With our sanitizers, so that they see what it does with our
# memory, but without checks for undefined behaviour: those cost minutes for implot's templates.
string(REPLACE "," ";" attnscope_ui_sanitizers "${ATTNSCOPE_SANITIZE}")
list(REMOVE_ITEM attnscope_ui_sanitizers undefined)
list(JOIN attnscope_ui_sanitizers "," attnscope_ui_sanitizers)
function(attnscope_ui_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC attnscope::ui_headers)
  target_compile_options(${name} PRIVATE -w)
  # Most of the time of a frame goes into it.
  if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-Og")
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  # implot makes every plot for every number type it is told of; ours are of one. The
  # demo windows are not part of the app.
  target_compile_definitions(${name} PRIVATE IMGUI_DISABLE_DEMO_WINDOWS
    "IMPLOT_CUSTOM_NUMERIC_TYPES=(double)")
  if(attnscope_ui_sanitizers)
    target_compile_options(${name} PRIVATE -fsanitize=${attnscope_ui_sanitizers}
      -fno-omit-frame-pointer -O1)
  endif()
endfunction()

attnscope_ui_library(ui_stack ${attnscope_ui_files})
add_library(attnscope::ui_stack ALIAS ui_stack)

if(ATTNSCOPE_TESTS)
  file(GLOB attnscope_te_files "${attnscope_ui_te}/*.cpp")
  list(FILTER attnscope_te_files EXCLUDE REGEX "python_gil")
  attnscope_ui_library(ui_stack_testable ${attnscope_ui_files} ${attnscope_te_files})
  add_library(attnscope::ui_stack_testable ALIAS ui_stack_testable)
  add_library(attnscope_ui_test_headers INTERFACE)
  add_library(attnscope::ui_test_headers ALIAS attnscope_ui_test_headers)
  target_include_directories(attnscope_ui_test_headers SYSTEM INTERFACE "${attnscope_ui_te}")
  target_compile_definitions(attnscope_ui_test_headers INTERFACE
    IMGUI_ENABLE_TEST_ENGINE IMGUI_TEST_ENGINE_ENABLE_COROUTINE_STDTHREAD_IMPL=1
    IMGUI_TEST_ENGINE_ENABLE_STD_FUNCTION=1 IMGUI_TEST_ENGINE_ENABLE_CAPTURE=0)
  target_link_libraries(ui_stack_testable PUBLIC attnscope_ui_test_headers)
  # Tests run with the libraries' own assertions, in every build type.
  target_compile_options(ui_stack_testable PRIVATE -UNDEBUG)
endif()
