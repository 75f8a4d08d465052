#include "app/views/block_mask_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "engine/backend/block_mask.h"
#include "engine/config/scenario.h"
#include "engine/family/dense/dense.h"
#include "engine/family/dense/encoder_decoder.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostMasked = 2048;  // tokens: each pair is asked

}  // namespace

std::string layer_mask(const ModelConfig& config, int index) {
  const int window = dense_window(config, index), chunk = dense_chunk(config, index);
  const std::string& mask = config.dense.mask;
  if (dense_looks_ahead(config, index)) return mask.empty() ? "1" : mask;
  std::string own = "causal";
  if (window > 0) own = fmt::format("sliding({})", window);
  if (chunk > 0) own = fmt::format("causal && q_idx // {0} == kv_idx // {0}", chunk);
  return mask.empty() ? own : fmt::format("{} && ({})", own, mask);
}

std::optional<std::int64_t> place_of_first(const ModelConfig& config, int index) {
  if (dense_side(config, index) != kCrossSide) return {};
  return 0;
}

BlockMaskView block_mask_view(const SessionInfo& info, const StepTrace& step, int layer,
                              std::int64_t token_row, int head) {
  BlockMaskView view;
  const int index = layer_index(info, layer);
  const StepMetadata& m = step.metadata;
  if (info.config.family != "dense" || index < 0) {
    view.why_empty = "Attention here is over what is selected, not by a mask.";
    return view;
  }
  if (token_row < 0 || token_row >= to_count(m.positions.size())) {
    view.why_empty = "This step has not come to its tokens yet.";
    return view;
  }
  const std::int64_t length = m.seq_lens[to_size(m.token_to_req[to_size(token_row)])];
  const RequestView* request = find_request(step, step.request_of(token_row));
  const std::int64_t prompt = request != nullptr ? request->request.prompt_tokens : 0;
  const std::int64_t source =
      std::clamp<std::int64_t>(source_tokens(info.config, prompt), 0, length);
  const DenseSide side = dense_side(info.config, index);
  const bool sided = is_encoder_decoder(info.config), of_source = side == kSourceSide;
  const std::int64_t keys = !sided ? length : side == kDecoderSide ? length - source : source;
  const std::int64_t queries = !sided || of_source ? keys : length - source;
  if (queries < 1 || keys < 1 || std::max(queries, keys) > kMostMasked) {
    view.why_empty = fmt::format("A mask of {} queries and {} keys is not drawn; at most {} are.",
                                 queries, keys, kMostMasked);
    return view;
  }
  const std::string text = layer_mask(info.config, index);
  const auto mask = parse_mask(text);
  if (!mask) {
    view.why_empty = mask.error().message;
    return view;
  }
  const MaskedSequence sequence{queries, keys, place_of_first(info.config, index)};
  const BlockMask tiles(*mask, {&sequence, 1}, info.config.heads);
  const std::int64_t map = std::clamp<std::int64_t>(head, 0, tiles.maps() - 1);
  view.blocks = tiles.blocks();
  view.across = tiles.across();
  std::int64_t counts[3] = {};
  for (std::int64_t b = 0; b < view.blocks; ++b) {
    for (std::int64_t k = 0; k < view.across; ++k) {
      view.tiles.push_back(tiles.tile(0, map, b, k));
      ++counts[view.tiles.back()];
    }
  }
  const std::int64_t first = sided && !of_source ? source : 0;
  const std::int64_t place = m.positions[to_size(token_row)] - first;
  if (place >= 0 && place < queries) view.own_block = place / AS_MASK_QUERIES;
  view.sentence = fmt::format(
      "Mask {}{}: {} queries over {} keys in tiles of {} x {}: {} empty, {} partial, {} full.",
      text, tiles.maps() > 1 ? fmt::format(" of head {}", map) : "", queries, keys, AS_MASK_QUERIES,
      AS_MASK_KEYS, counts[AS_TILE_EMPTY], counts[AS_TILE_PARTIAL], counts[AS_TILE_FULL]);
  return view;
}

}  // namespace attnscope
