#include "app/views/sided_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/text/format.h"
#include "engine/config/scenario.h"
#include "engine/model/numbers.h"

namespace attnscope {

bool is_sided(const SessionInfo& info) { return !info.config.dense.sides.empty(); }

SidedRows sided_rows(const SessionInfo& info, int index, std::int64_t prompt,
                     std::int64_t position) {
  const ModelConfig& c = info.config;
  const int side = c.dense.sides[to_size(c.layers[to_size(index)])];
  const std::int64_t source = std::max<std::int64_t>(0, source_tokens(c, prompt));
  const bool of_source = position < source;
  SidedRows rows;
  if (of_source != (side == kSourceSide)) {
    rows.sentence =
        fmt::format("Token {} is of the {}: layers of the {} leave its row as it is.", position,
                    of_source ? "source" : "decoder", of_source ? "decoder" : "encoder");
    return rows;
  }
  if (side == kSourceSide) {
    rows.end = source;
    rows.sentence =
        fmt::format("Token {} sees all of the source, {}, before and behind it. No row is kept.",
                    position, plural(source, "token", "tokens"));
  } else if (side == kCrossSide) {
    rows.end = source;
    rows.sentence = fmt::format(
        "Cross attention: token {} of the decoder sees the source, {}, positions 0-{}. "
        "Their keys and values were written with the prompt and stay as they are.",
        position - source, plural(source, "token", "tokens"), source - 1);
  } else {
    rows.begin = source;
    rows.end = position + 1;
    rows.sentence = fmt::format(
        "Token {} of the decoder sees the {} of it up to itself, positions {}-{}: behind the "
        "source.",
        position - source, position + 1 - source, source, position);
  }
  return rows;
}

}  // namespace attnscope
