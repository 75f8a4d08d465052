#include "app/gui/process_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>

namespace attnscope::gui {

void give_memory_back() {
#ifdef __GLIBC__
  constexpr int kLarge = 1 << 20;  // bytes
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_TRIM_THRESHOLD, kLarge);
  mallopt(M_MMAP_THRESHOLD, kLarge);
#endif
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return file ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace attnscope::gui
