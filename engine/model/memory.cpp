#include "engine/model/memory.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace attnscope {

std::int64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  std::string key;
  std::int64_t kibibytes = 0;
  while (info >> key >> kibibytes) {
    if (key == "MemAvailable:") return kibibytes * 1024;
    info.ignore(64, '\n');
  }
  return -1;
}

Result<void> check_memory(std::int64_t needed) {
  const std::int64_t available = available_memory();
  if (available < 0 || needed <= available) return {};
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  return Error{
      AS_NO_ENVIRONMENT,
      fmt::format("the model, its histories and one step need about {:.1f} GiB and {:.1f} "
                  "GiB are available",
                  static_cast<double>(needed) / kGiB, static_cast<double>(available) / kGiB),
      "run fewer layers (model.layers), shorter prompts, smaller token_budget or pool_blocks, or "
      "--references none"};
}

}  // namespace attnscope
