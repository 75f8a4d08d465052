# shellcheck shell=bash disable=SC2154
# Stand-ins of the launcher's tests for apt, cmake, ninja, ctest, pip and the program, and the
# folder they work in. Sourced by launcher_test.sh, which sets source_folder and work.

stand_in() {
  cat >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# The sources of the desktop app's libraries as the launcher keeps them.
gui_fetched() {
  local folder=$work/tree/build/deps/imgui-bundle te=imgui_test_engine
  mkdir -p "$folder/imgui/imgui" "$folder/implot/implot" "$folder/hello_imgui" \
    "$folder/$te/$te/$te"
  touch "$folder/imgui/imgui/imgui.cpp" "$folder/implot/implot/implot.cpp" \
    "$folder/hello_imgui/stb_image_write.h" "$folder/$te/$te/$te/imgui_te_engine.cpp" \
    "$folder/hello_imgui/Font_Awesome_6_Free-Solid-900.otf"
  sed -n "s/^GUI_SOURCES='\(.*\)'$/\1/p" "$source_folder/app/launcher/packages.sh" |
    tr -d '\n' >"$folder/.source"
}

# What comes from the package index: the real one's folders, with files that are of no use.
make_sdist() {
  local top=$work/sdist/imgui_bundle-1.93.0 te=imgui_test_engine file
  for file in imgui/imgui/imgui.cpp imgui/imgui/imgui.h imgui/imgui/LICENSE.txt \
    imgui/imgui/examples/example.cpp imgui/imgui/backends/imgui_impl_glfw.cpp \
    imgui/imgui/backends/imgui_impl_opengl3.cpp imgui/imgui/backends/imgui_impl_vulkan.cpp \
    implot/implot/implot.cpp implot/implot/implot.h implot/implot/LICENSE \
    "$te/$te/$te/imgui_te_engine.cpp" "$te/$te/$te/imgui_te_engine.h" "$te/$te/$te/LICENSE.txt" \
    "$te/$te/$te/thirdparty/Str/Str.h" immvision/immvision.cpp \
    hello_imgui/hello_imgui/external/stb_hello_imgui/stb_image_write.h \
    hello_imgui/hello_imgui/hello_imgui_assets/fonts/Font_Awesome_6_Free-Solid-900.otf \
    hello_imgui/hello_imgui/hello_imgui_assets/fonts/LICENSE-FontAwesome.txt; do
    mkdir -p "$top/external/$(dirname "$file")"
    touch -d 2020-01-01 "$top/external/$file"
  done
  tar -czf "$work/sdist.tar.gz" -C "$work/sdist" imgui_bundle-1.93.0
}

# A new folder with the launcher, sources and stand-ins; everything installed, user root.
fresh_world() {
  rm -rf "${work:?}"/*
  mkdir -p "$work/tree/app/launcher" "$work/tree/engine" "$work/tree/kernels" \
    "$work/tree/reference" "$work/tree/tests" "$work/bin" "$work/home"
  cp "$source_folder/attnscope" "$work/tree/"
  cp "$source_folder"/app/launcher/*.sh "$work/tree/app/launcher/"
  gui_fetched
  touch "$work/tree/CMakeLists.txt" "$work/tree/CMakePresets.json" "$work/tree/app/main.cpp"
  : >"$work/calls"
  : >"$work/not-installed"
  echo 0 >"$work/uid"
  stand_in id <<END
#!/bin/sh
cat "$work/uid"
END
  stand_in sudo <<END
#!/bin/sh
exit 1
END
  stand_in nvidia-smi <<END
#!/bin/sh
exit 9
END
  stand_in dpkg-query <<END
#!/bin/bash
for name in "\${@:4}"; do
  grep -qx -- "\$name" "$work/not-installed" || echo "installed \$name"
done
END
  stand_in apt-cache <<END
#!/bin/sh
if [ -z "\$2" ]; then [ -e "$work/no-lists" ] || echo " release a=stable,c=main"; exit 0; fi
if [ -e "$work/no-lists" ]; then exit 0; fi
if [ -e "$work/no-candidate" ] && grep -qx "\$2" "$work/no-candidate"; then exit 0; fi
echo "  Candidate: 1.0"
seq 20000
END
  stand_in apt-get <<END
#!/bin/sh
echo "apt-get \$*" >>"$work/calls"
if [ -e "$work/apt-fails" ]; then exit 100; fi
case "\$*" in
  *install*) : >"$work/not-installed" ;;
  *update*) rm -f "$work/no-lists" ;;
esac
END
  stand_in uname <<END
#!/bin/sh
cat "$work/machine" 2>/dev/null || echo x86_64
END
  stand_in python3 <<END
#!/bin/bash
# pip download, its check of what came, and the unpacking.
case "\$1 \$2 \$3" in
  "-m pip --version")
    [ ! -e "$work/no-pip" ] || grep -q 'install.*python3-pip' "$work/calls"
    exit
    ;;
  "-m pip download")
    requirement=\$(cat "\${!#}")
    echo "pip \$requirement" >>"$work/calls"
    while [ "\$1" != --dest ]; do shift; done
    case \$requirement in
      torch==* | imgui-bundle==*)
        if [ -e "$work/pip-fails" ]; then cat "$work/pip-fails"; exit 1; fi
        ;;
    esac
    case \$requirement in
      imgui-bundle==*)
        [ -s "\${PYTHONPATH%%:*}/scikit_build_core/build.py" ] || exit 1
        cp "$work/sdist.tar.gz" "\$2/imgui_bundle-1.93.0.tar.gz"
        exit
        ;;
    esac
    touch "\$2/\${requirement%%=*}.whl"
    ;;
  "-c "*)
    echo "unpack \$(cd "\$3" && echo *.whl)" >>"$work/calls"
    [ ! -e "$work/unpack-fails" ] || exit 1
    mkdir -p "\$4/torch/lib" "\$4/torch/share/cmake/Torch"
    touch "\$4/torch/lib/libtorch_cpu.so" "\$4/torch/share/cmake/Torch/TorchConfig.cmake"
    ;;
esac
END
  stand_in cmake <<END
#!/bin/bash
echo "cmake \$*" >>"$work/calls"
echo "prefix \$CMAKE_PREFIX_PATH" >>"$work/calls"
if [ -e "$work/cmake-fails" ]; then cat "$work/cmake-fails"; exit 1; fi
while [ "\$1" != -B ]; do shift; done
mkdir -p "\$2"; echo ok >"\$2/build.ninja"
if [ -e "$work/other-compiler" ]; then echo "-- Warnings are errors: OFF (GNU 99.1)"; fi
if [ -e "$work/no-gui" ]; then
  echo "-- GUI: no (no GLFW: install libglfw3-dev)"
  echo "ATTNSCOPE_HAS_GUI:INTERNAL=FALSE" >"\$2/CMakeCache.txt"
else
  echo "-- GUI: yes (imgui 1.93.0, GLFW 3.3.8)"
  echo "ATTNSCOPE_HAS_GUI:INTERNAL=TRUE" >"\$2/CMakeCache.txt"
fi
END
  # Links the program if it is missing or older than the source, as the real one would.
  stand_in ninja <<END
#!/bin/bash
echo "ninja \$*" >>"$work/calls"
echo building >>"$work/log-of-builds"
while [ "\$1" != -C ]; do shift; done
folder=\$2
if [ "\$(cat "\$folder/build.ninja")" != ok ]; then echo "ninja: error: build.ninja"; exit 1; fi
if [ -e "$work/ninja-fails" ]; then
  for i in \$(seq 50); do echo "line \$i"; done
  cat "$work/ninja-fails"
  exit 1
fi
[ -e "$work/slow" ] && sleep 1
program=\$folder/app/attnscope name=program
if [ "\${!#}" = attnscope_app ]; then
  if grep -q GUI:INTERNAL=FALSE "\$folder/CMakeCache.txt"; then exit 0; fi
  program=\$folder/app/attnscope_app name="desktop app"
fi
mkdir -p "\$folder/app"
if [ ! -e "\$program" ] || [ "$work/tree/app/main.cpp" -nt "\$program" ]; then
  echo "linked" >>"$work/calls"
  printf '#!/bin/sh\necho "%s \$*"\nexit \${PROGRAM_STATUS:-0}\n' "\$name" >"\$program.new"
  chmod +x "\$program.new"
  mv "\$program.new" "\$program"
fi
END
  mkdir -p "$work/tree/tests/fuzz"
  cat >"$work/tree/tests/fuzz/run.sh" <<END
#!/bin/sh
echo "fuzz \$*" >>"$work/calls"
if [ -e "$work/fuzz-finds" ]; then cat "$work/fuzz-finds"; exit 1; fi
echo "config ok, 7 inputs in 60 s"
END
  mkdir -p "$work/tree/tests/unit/repo"
  cat >"$work/tree/tests/unit/repo/tidy.sh" <<END
#!/bin/sh
echo "tidy \$*" >>"$work/calls"
if [ -e "$work/tidy-finds" ]; then cat "$work/tidy-finds"; exit 1; fi
echo "clang-tidy: 7 sources, nothing found"
END
  mkdir -p "$work/tree/tests/bugs"
  cat >"$work/tree/tests/bugs/stack.sh" <<END
#!/bin/sh
echo "stack \$*" >>"$work/calls"
if [ -e "$work/stack-fails" ]; then cat "$work/stack-fails" >&2; exit 1; fi
END
  cat >"$work/tree/tests/bugs/table.sh" <<END
#!/bin/sh
echo "table \$*" >>"$work/calls"
echo "caught  one_bug"
if [ -e "$work/bug-missed" ]; then cat "$work/bug-missed"; exit 1; fi
echo "2 bugs, 1 runs without one; 0 failed"
END
  chmod +x "$work"/tree/tests/{fuzz/run,unit/repo/tidy,bugs/stack,bugs/table}.sh
  stand_in ctest <<END
#!/bin/sh
echo "ctest \$*" >>"$work/calls"
while [ \$# -gt 0 ]; do
  case \$1 in
    --test-dir) times=\$2/tests/times ;;
    --output-log) log=\$2 ;;
  esac
  shift
done
echo ' 1/3 Test  #1: test_app.1 ........   Passed   12.50 sec' >"\$log"
echo ' 2/3 Test  #3: test_app.2 ........***Failed    2.50 sec' >>"\$log"
echo ' 3/3 Test  #2: repo.layers .......   Passed    1.25 sec' >>"\$log"
cat >"\$times/test_app.1.json" <<JSON
          "name": "Quick",
          "result": "SKIPPED",
          "time": "0.001s",
          "classname": "Capture"
          "name": "Slow\/1",
          "result": "COMPLETED",
          "time": "11.9s",
          "classname": "Capture"
JSON
exit \${CTEST_STATUS:-0}
END
}
