#include "app/views/window_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "app/text/format.h"
#include "app/views/attention_form.h"
#include "app/views/block_tables_view.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "app/views/shared_rows.h"
#include "app/views/sided_rows.h"
#include "engine/family/models.h"
#include "engine/io/plural.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// "41, 57 and 58"
std::string list_of(const std::vector<std::int32_t>& blocks) {
  std::string text;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i > 0) text += i + 1 == blocks.size() ? " and " : ", ";
    text += fmt::format("{}", blocks[i]);
  }
  return text;
}

double mean_over_heads(const AttentionCopy& a, std::span<const float> values, std::int64_t kept,
                       std::int64_t column, int head) {
  const std::int64_t columns = a.window + a.extra;
  const auto at = [&](std::int64_t h) {
    return static_cast<double>(
        values[static_cast<std::size_t>((kept * a.heads + h) * columns + column)]);
  };
  if (head >= 0 && head < a.heads) return at(head);
  double sum = 0;
  for (std::int64_t h = 0; h < a.heads; ++h) sum += at(h);
  return sum / static_cast<double>(std::max<std::int64_t>(a.heads, 1));
}

// As a lane listed them, perhaps a wrong one.
std::vector<std::int64_t> listed_slots(const SessionInfo& info, const StepMetadata& m,
                                       const CacheSpec& spec, std::int64_t token_row) {
  const StepTensor& lists = *m.lists_of(spec.id);
  const StepTensor& lengths = m.own[to_size(lists.lengths)];
  const std::int64_t window = info.config.window;
  const auto& swa = info.layout.swa_groups;
  const auto list = std::find(swa.begin(), swa.end(), spec.group) - swa.begin();
  const auto first =
      lists.numbers.begin() +
      static_cast<std::ptrdiff_t>((list * m.num_tokens_in_step() + token_row) * window);
  const std::int64_t length =
      std::clamp<std::int64_t>(lengths.numbers[to_size(token_row)], 0, window);
  return {first, first + static_cast<std::ptrdiff_t>(length)};
}

// Through the table of its chunk, as a lane has made it, perhaps a wrong one; -1 = nowhere.
std::vector<std::int64_t> slots_of_chunk(const SessionInfo& info, const StepMetadata& m,
                                         const CacheSpec& spec, std::int32_t request,
                                         std::int64_t position) {
  std::vector<std::int64_t> slots;
  for (const LocalSequence& one : local_sequences(info, m, request, spec.group)) {
    if (position < one.first || position > one.last) continue;
    const std::int64_t seen = std::min(one.rows, position - one.begin + 1);
    for (std::int64_t i = 0; i < seen; ++i) {
      const std::size_t column = to_size(i / spec.block_size());
      const std::int32_t block = column < one.blocks.size() ? one.blocks[column] : -1;
      slots.push_back(block > 0 ? std::int64_t{block} * spec.rows_per_block + i % spec.block_size()
                                : -1);
    }
  }
  return slots;
}

// Where the request's table says that they lie; -1 = nowhere.
std::vector<std::int64_t> slots_by_position(const CacheSpec& spec, const RequestView* request,
                                            std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> slots;
  for (std::int64_t p = begin; p < end; ++p) {
    const std::size_t column = to_size(p / spec.block_size());
    std::int32_t block = 0;
    if (request != nullptr && column < request->tables[to_size(spec.group)].size()) {
      block = request->tables[to_size(spec.group)][column];
    }
    slots.push_back(block > 0 ? std::int64_t{block} * spec.rows_per_block + p % spec.block_size()
                              : -1);
  }
  return slots;
}

// What the token at this position is the first one not to see.
std::string left_with(const CacheSpec& spec, std::int64_t position) {
  const std::int64_t chunk = spec.retention.window;
  if (chunk == 0 || position < chunk) return {};
  if (spec.retention.kind == GroupKind::kSliding) {
    return fmt::format("Position {} left the window with this token.", position - chunk);
  }
  if (position % chunk != 0) return {};
  return fmt::format("The chunk of positions {}-{} ended before this token.", position - chunk,
                     position - 1);
}

// "Chunk 2, positions 64-95: token 70 sees 7 of its 32 rows, 64-70 in block 5 (chunked). The 4
// blocks before it were given back when their chunks ended."
std::string chunk_sentence(const WindowView& view, std::int64_t position, const std::string& group,
                           const std::vector<std::int32_t>& blocks) {
  const auto seen = static_cast<std::int64_t>(view.slots.size());
  std::string text = fmt::format("Chunk {}, positions {}-{}: token {} sees {} of its {} rows",
                                 view.begin / view.window, view.begin, view.begin + view.window - 1,
                                 format_count(position), seen, format_count(view.window));
  if (!blocks.empty()) {
    text += fmt::format(", {}-{} in {} {} ({})", view.begin, view.begin + seen - 1,
                        agree(blocks.size(), "block", "blocks"), list_of(blocks), group);
  }
  text += ".";
  if (view.nulls_before == 0) return text;
  const bool one = view.nulls_before == 1;
  return text +
         fmt::format(" {} before it {} given back when {} ended.",
                     one ? "The block" : "The " + format_count(view.nulls_before) + " blocks",
                     one ? "was" : "were", one ? "its chunk" : "their chunks");
}

// "ALiBi takes 0.25 off a score of head 3 for each token between." Of all heads: from the least to
// the most. Empty where the layer has no such bias.
std::string alibi_sentence(const OpTrace* op, int head) {
  const TapCopy* slopes = op == nullptr ? nullptr : op->tap("alibi_slopes");
  if (slopes == nullptr || slopes->value.shape[0] <= std::max(head, 0)) return {};
  const auto slope = [&](std::int64_t h) {
    return static_cast<double>(*at<float>(slopes->value, h));
  };
  if (head >= 0) {
    return fmt::format(" ALiBi takes {} off a score of head {} for each token between.",
                       format_number(slope(head)), head);
  }
  double least = slope(0), most = slope(0);
  for (std::int64_t h = 1; h < slopes->value.shape[0]; ++h) {
    least = std::min(least, slope(h));
    most = std::max(most, slope(h));
  }
  return fmt::format(" ALiBi takes {} to {} off a score for each token between.",
                     format_number(least), format_number(most));
}

// Rows that a mask has not hidden, or that were selected, where weights are there.
std::int64_t shown_rows(const WindowView& view) {
  return std::ranges::count_if(view.slots, [](const WindowSlot& slot) {
    return slot.has_weight &&
           (slot.weight > 0 || slot.logit > -std::numeric_limits<double>::infinity());
  });
}

// " The mask shows 5 of these rows." Empty without a mask, or weights.
std::string mask_sentence(const SessionInfo& info, const WindowView& view) {
  if (info.config.dense.mask.empty() ||
      std::ranges::none_of(view.slots, [](const WindowSlot& slot) { return slot.has_weight; })) {
    return {};
  }
  return fmt::format(" The mask shows {} of these rows.", format_count(shown_rows(view)));
}

// Of a layer without caches: all of the request, before and behind the token, or, in an
// encoder-decoder, of its source.
WindowView packed_view(const SessionInfo& info, const StepTrace& step, int layer,
                       std::int64_t token_row, int head, const SidedRows* source) {
  WindowView view;
  const StepMetadata& m = step.metadata;
  if (token_row < 0 || token_row >= to_count(m.positions.size())) {
    view.sentence = "This step has not come to its tokens yet.";
    return view;
  }
  const OpTrace* op = step.find_role(layer, AS_ROLE_ATTENTION);
  const AttentionCopy* weights = op != nullptr ? op->attention.get() : nullptr;
  const std::int64_t kept = step.kept_index(token_row);
  const std::int32_t row = m.token_to_req[to_size(token_row)];
  view.valid = view.whole = true;
  for (std::int64_t t = 0; t < to_count(m.positions.size()); ++t) {
    if (m.token_to_req[to_size(t)] != row) continue;
    if (source != nullptr && m.positions[to_size(t)] >= source->end) continue;
    WindowSlot slot;
    slot.position = m.positions[to_size(t)];
    slot.token = m.tokens[to_size(t)];
    const auto i = to_count(view.slots.size());
    if (t == token_row) view.own = i;
    if (weights != nullptr && kept >= 0 && i < weights->window) {
      slot.has_weight = true;
      slot.logit = mean_over_heads(*weights, weights->logits, kept, i, head);
      slot.weight = mean_over_heads(*weights, weights->weights, kept, i, head);
      view.largest_weight = std::max(view.largest_weight, slot.weight);
    }
    view.slots.push_back(slot);
  }
  view.window = to_count(view.slots.size());
  const std::string all =
      fmt::format("Token {} sees all of its request, {}, before and behind it. No row is kept.",
                  m.positions[to_size(token_row)], plural(view.window, "token", "tokens"));
  view.sentence = (source != nullptr ? source->sentence : all) + mask_sentence(info, view) +
                  alibi_sentence(op, head);
  return view;
}

}  // namespace

WindowView window_view(const SessionInfo& info, const StepTrace& step, int layer,
                       std::int64_t token_row, int head) {
  WindowView view;
  const StepMetadata& m = step.metadata;
  const int index = layer_index(info, layer);
  const CacheSpec* spec = index < 0 ? nullptr : token_rows(info.layout, index);
  const auto tokens = static_cast<std::int64_t>(m.positions.size());
  if (index >= 0 && info.layout.groups.empty()) {
    return packed_view(info, step, layer, token_row, head, nullptr);
  }
  const bool sided = index >= 0 && is_sided(info);
  SidedRows seen;
  if (sided && token_row >= 0 && token_row < to_count(m.positions.size())) {
    const RequestView* request = find_request(step, step.request_of(token_row));
    const std::int64_t prompt = request != nullptr ? request->request.prompt_tokens : 0;
    seen = sided_rows(info, index, prompt, m.positions[to_size(token_row)]);
    if (seen.begin == seen.end) {
      view.sentence = seen.sentence;
      return view;
    }
    if (spec == nullptr) return packed_view(info, step, layer, token_row, head, &seen);
  }
  if (spec == nullptr) {
    view.sentence = "Outside the layers there is no window: choose an op of a layer.";
    return view;
  }
  // Where rows are found by position, through the table, there is no list of them.
  const bool listed = !info.layout.swa_groups.empty();
  const bool chunked = spec->retention.kind == GroupKind::kChunked;
  const StepTensor* lists = m.lists_of(spec->id);
  if (token_row < 0 || token_row >= tokens || (listed && (lists == nullptr || lists->empty()))) {
    view.sentence = "This step has not come to its window lists yet.";
    return view;
  }
  const auto row = static_cast<std::size_t>(token_row);
  const std::int64_t position = m.positions[row];
  const bool whole = spec->retention.window == 0;
  view.valid = true;
  view.whole = whole;
  view.group = spec->group;
  view.window = whole ? position + 1 : std::int64_t{spec->retention.window};
  const std::int64_t first_seen = sided ? seen.begin : spec->retention.first_seen(position);
  // A mask may show what lies ahead, but not in a layer with a window.
  const bool masked = !info.config.dense.mask.empty();
  const std::int64_t known = masked && whole ? m.seq_lens[to_size(m.token_to_req[row])] : 0;
  const std::int64_t end = sided ? seen.end : std::max(position + 1, known);
  if (sided || (masked && whole)) view.window = end - first_seen;
  const std::int32_t request = step.request_of(token_row);
  const RequestView* owner = find_request(step, request);
  const std::vector<std::int64_t> slots = listed ? listed_slots(info, m, *spec, token_row)
                                          : chunked
                                              ? slots_of_chunk(info, m, *spec, request, position)
                                              : slots_by_position(*spec, owner, first_seen, end);
  const auto length = static_cast<std::int64_t>(slots.size());
  const OpTrace* op = step.find_role(layer, AS_ROLE_ATTENTION);
  const AttentionCopy* weights = op != nullptr ? op->attention.get() : nullptr;
  const std::int64_t kept = step.kept_index(token_row);
  // Where rows are selected, or lie in a pool, the columns are not the positions.
  std::map<std::int64_t, std::int64_t> columns;  // by slot
  for (std::int64_t c = 0; weights != nullptr && kept >= 0 && c < weights->window; ++c) {
    const std::int64_t read =
        weights->slots[to_size(kept * (weights->window + weights->extra) + c)];
    if (read >= 0) columns.emplace(read, c);
  }
  std::vector<std::int32_t> blocks;
  for (std::int64_t i = 0; i < length; ++i) {
    WindowSlot slot;
    slot.position = end - length + i;
    slot.slot = slots[static_cast<std::size_t>(i)];
    slot.block = static_cast<std::int32_t>(slot.slot / spec->rows_per_block);
    slot.row = static_cast<std::int32_t>(slot.slot % spec->rows_per_block);
    if (owner != nullptr && slot.position >= 0 && slot.position < owner->request.num_tokens()) {
      slot.token = owner->request.tokens[static_cast<std::size_t>(slot.position)];
    }
    if (const auto column = columns.find(slot.slot);
        weights != nullptr && column != columns.end()) {
      slot.has_weight = true;
      slot.logit = mean_over_heads(*weights, weights->logits, kept, column->second, head);
      slot.weight = mean_over_heads(*weights, weights->weights, kept, column->second, head);
      view.largest_weight = std::max(view.largest_weight, slot.weight);
    }
    if (slot.slot >= 0 && (blocks.empty() || blocks.back() != slot.block)) {
      blocks.push_back(slot.block);
    }
    view.slots.push_back(slot);
  }
  view.own = sided && end != position + 1 ? -1 : position - (end - length);
  if (chunked) view.begin = spec->retention.first_seen(position);
  view.left = left_with(*spec, position);
  if (owner != nullptr) {
    const auto& table = owner->tables[static_cast<std::size_t>(spec->group)];
    const std::int64_t first = (end - length) / spec->block_size();
    for (std::int64_t i = 0; i < first && i < static_cast<std::int64_t>(table.size()); ++i) {
      view.nulls_before += table[static_cast<std::size_t>(i)] == 0 ? 1 : 0;
    }
  }
  const std::string group = info.layout.groups[static_cast<std::size_t>(spec->group)].name;
  const std::string by_mask = mask_sentence(info, view);
  if (chunked) {
    view.sentence = chunk_sentence(view, position, group, blocks) + by_mask +
                    alibi_sentence(op, head) + sharing_sentence(info, layer);
    return view;
  }
  if (sided) {
    view.sentence = seen.sentence +
                    fmt::format(" They lie in {} {} ({}).", agree(blocks.size(), "block", "blocks"),
                                list_of(blocks), group) +
                    by_mask;
    return view;
  }
  const std::string where =
      fmt::format("positions {}-{} in {} {} ({})", end - length, end - 1,
                  agree(blocks.size(), "block", "blocks"), list_of(blocks), group);
  const bool selects = whole && layer_selects(info.config, index);
  if ((masked || selects) && !columns.empty()) {
    view.sentence = fmt::format("Token {} {} {} of {}: {}.", format_count(position),
                                masked ? "is shown" : "selects", format_count(shown_rows(view)),
                                plural(length, "row", "rows"), where);
  } else {
    view.sentence = fmt::format("{} token {}: {}.", whole ? "All before" : "Window of",
                                format_count(position), where);
  }
  if (view.nulls_before > 0) {
    view.sentence +=
        fmt::format(" {} table {} before them {} null and {} not read.",
                    format_count(view.nulls_before), agree(view.nulls_before, "entry", "entries"),
                    agree(view.nulls_before, "is", "are"), agree(view.nulls_before, "was", "were"));
  }
  if (length < view.window) {
    view.sentence +=
        fmt::format(" {} of its {} slots are not there yet.", view.window - length, view.window);
  }
  view.sentence += alibi_sentence(op, head) + sharing_sentence(info, layer);
  if (op != nullptr && op->place.op == AS_OP_PAGED_ATTENTION) {
    view.sentence += cut_sentence(
        attention_cut(info, step, spec->group, m.token_to_req[row], whole && !masked && !sided),
        first_seen);
  }
  return view;
}

}  // namespace attnscope
