
#include "app/cli/cli.h"

int main(int argc, char** argv) {
  return attnscope::run_cli(std::vector<std::string>(argv, argv + argc));
}
