#include "engine/session/what_if/pooled_tokens.h"

#include "engine/session/what_if/deepseek_v4/entries.h"

namespace attnscope {
namespace {

const FamilyEntries* entries_of(const ModelConfig& config) {
  for (const FamilyEntries* one : {&deepseek_v4_entries()}) {
    if (config.family == one->family) return one;
  }
  return nullptr;
}

}  // namespace

bool read_to_select(const ModelConfig& config, CacheId cache) {
  const FamilyEntries* family = entries_of(config);
  return family != nullptr && family->of_selection(cache);
}

Result<std::vector<PooledToken>> pooled_tokens(const Session& session, int running_layer,
                                               std::int32_t request, std::int64_t entry,
                                               std::int64_t channel, bool of_selection) {
  const FamilyEntries* family = entries_of(session.parts().config);
  if (family == nullptr) {
    return bad_input("this layer has no entries that tokens are pooled into",
                     "every row of its caches is one token's; --slot says who wrote it");
  }
  return family->tokens(session, running_layer, request, entry, channel, of_selection);
}

}  // namespace attnscope
