#include "engine/session/what_if/deepseek_v4/entries.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/family/deepseek_v4/caches.h"
#include "engine/model/numbers.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

bool of_indexer(CacheId cache) { return cache == kIndexCache || cache == kIndexStateCache; }

Result<std::vector<PooledToken>> tokens_of(const Session& session, int running_layer,
                                           std::int32_t request, std::int64_t entry,
                                           std::int64_t channel, bool index) {
  const CacheLayout& layout = session.parts().layout;
  const CacheSpec* state = layout.find(running_layer, index ? kIndexStateCache : kMainStateCache);
  if (state == nullptr) {
    return bad_input("this layer has no such entries", "name a C4A or C128A layer");
  }
  const std::int64_t ratio = session.parts().config.ratio(running_layer);
  const std::int64_t dim =
      index ? session.parts().config.index_dim : session.parts().config.head_dim;
  const auto& requests = session.serving().requests();
  if (request < 0 || to_size(request) >= requests.size() || channel < 0 || channel >= dim) {
    return bad_input(
        fmt::format("no request {} or no channel {}", request, channel),
        fmt::format("requests 0 to {}, channels 0 to {}", requests.size() - 1, dim - 1));
  }
  const std::int64_t base = session.verifier().space().base(request, 1);
  const std::int64_t last = (entry + 1) * ratio - 1;
  const Shadow& shadow = session.verifier().shadow();
  if (entry < 0 || last >= requests[to_size(request)].max_len() ||
      shadow.written(*state, base + last) < 0) {
    return bad_input(fmt::format("request {} has no entry {} yet", request, entry),
                     "an entry exists once its last token was computed");
  }
  const std::int64_t overlap = ratio == 4 ? 2 : 1;
  const as_cache rows = shadow.cache(*state);
  const Weight& bias =
      session.parts()
          .weights->layers[to_size(running_layer)][index ? "indexer.ape" : "compressor.ape"];
  std::vector<PooledToken> tokens;
  std::vector<const float*> memory;
  // The rows that the op which made the entry was given, in the shadow.
  const std::int32_t first = static_cast<std::int32_t>(base), only_request = 0;
  const std::int64_t emitted = 0;
  as_compress_insert_params p{};
  p.state = rows;
  p.table = make_tensor(&first, {1, 1});
  p.token_to_req = make_tensor(&only_request, {1});
  p.positions = make_tensor(&last, {1});
  p.slots = make_tensor(&emitted, {1});
  p.ratio = static_cast<std::int32_t>(ratio);
  const std::size_t offset = offsetof(as_compress_insert_params, state);
  RowAccess::for_each(&p, *RowAccess::find(AS_OP_COMPRESS_INSERT, offset), [&](const RowVisit& v) {
    PooledToken token;
    token.position = v.place;
    token.older_half = overlap == 2 && v.place < entry * ratio;
    const float* row = at<float>(rows.data, v.slot, overlap == 2 && !token.older_half ? dim : 0);
    token.value = static_cast<double>(row[channel]);
    token.score = static_cast<double>(row[overlap * dim + channel]);
    const std::int64_t half = overlap == 2 && !token.older_half ? dim : 0;
    token.ape =
        static_cast<double>(bias.f32.data()[v.place % ratio * overlap * dim + half + channel]);
    memory.push_back(row + overlap * dim);
    tokens.push_back(token);
  });
  for (std::int64_t k = 0; k < dim; ++k) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const float* scores : memory) largest = std::max<double>(largest, scores[k]);
    for (const float* scores : memory) sum += std::exp(scores[k] - largest);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const double weight = std::exp(memory[i][k] - largest) / sum;
      tokens[i].mean_weight += weight / static_cast<double>(dim);
      if (k == channel) tokens[i].weight = weight;
    }
  }
  return tokens;
}

}  // namespace

const FamilyEntries& deepseek_v4_entries() {
  static constexpr FamilyEntries kEntries = {"deepseek_v4", of_indexer, tokens_of};
  return kEntries;
}

}  // namespace attnscope
