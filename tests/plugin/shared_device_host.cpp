// attnscope_plugin_host with the tests' device in the place of the GPU.
#include "engine/plugin/child.h"
#include "tests/plugin/shared_device.h"

int main(int, char** argv) {
  using namespace attnscope;
  return run_plugin_child(argv[1], []() -> Result<std::shared_ptr<PluginDevice>> {
    return std::shared_ptr<PluginDevice>(std::make_shared<SharedDevice>());
  });
}
