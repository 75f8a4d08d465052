#include "app/views/shared_rows.h"

#include <fmt/format.h>

#include <vector>

#include "app/views/op_order.h"
#include "engine/io/plural.h"
#include "engine/model/numbers.h"

namespace attnscope {

std::string sharing_sentence(const SessionInfo& info, int layer) {
  const int index = layer_index(info, layer);
  if (index < 0) return {};
  const int owner = info.layout.owner(index);
  if (owner != index) {
    return fmt::format(
        " Layer {} shares with layer {}: it reads the rows that layer {} wrote and writes none.",
        layer, info.config.layers[to_size(owner)], info.config.layers[to_size(owner)]);
  }
  std::string readers;
  const std::vector<int> sharers = info.layout.sharers(index);
  for (std::size_t i = 0; i < sharers.size(); ++i) {
    if (i > 0) readers += i + 1 < sharers.size() ? ", " : " and ";
    readers += std::to_string(info.config.layers[to_size(sharers[i])]);
  }
  if (readers.empty()) return {};
  return fmt::format(" {} {} {} its rows too.", agree(sharers.size(), "Layer", "Layers"), readers,
                     agree(sharers.size(), "reads", "read"));
}

}  // namespace attnscope
