// The program that a plugin's kernels run in: attnscope starts it, with the library's path and two
// descriptors (engine/plugin/protocol.h).
#include <sys/socket.h>

#include <cstdio>

#include "engine/plugin/child.h"
#include "engine/plugin/protocol.h"

int main(int argc, char** argv) {
  int type = 0;
  socklen_t size = sizeof(type);
  const bool called =
      ::getsockopt(attnscope::kPluginSocket, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
  if (argc != 2 || !called) {
    std::fprintf(stderr, "attnscope_plugin_host is started by 'attnscope --plugin LIBRARY'\n");
    return 2;
  }
  return attnscope::run_plugin_child(argv[1]);
}
