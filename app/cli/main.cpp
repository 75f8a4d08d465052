#include <cstdio>
#include <cstdlib>

#include "app/cli/cli.h"

int main(int argc, char** argv) {
  const int code = attnscope::run_cli(std::vector<std::string>(argv, argv + argc));
  // All work is done and everything of ours is gone. The destructors of static objects are left
  // out: those of libtorch free memory that is not theirs in some builds (PyTorch 2.11 for CUDA, on
  // Ubuntu 24.04), which would turn the exit code into 134.
  std::fflush(nullptr);
  std::_Exit(code);
}
