// What the cache panel shows of another engine's cache events: the prefix map after a batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/views/kv_stream.h"

namespace attnscope {

struct StreamRow {
  std::string hash, parent, group, ends_with, where;
  std::int64_t prefix = -1;  // tokens of the prefix that it ends; -1 = not known
  std::int64_t blocks = 0;
  std::int64_t batch = -1;  // that stored it
  bool fresh = false;       // in the batch that is shown
};
struct StreamView {
  std::string sentence;
  std::vector<StreamRow> rows;  // newest first
};
StreamView stream_view(const KvStream& stream, const KvStreamMap& map);

}  // namespace attnscope
