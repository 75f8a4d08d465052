#include "app/views/slab_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/text/format.h"
#include "app/views/shared_rows.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

// Of a row of the page, from its beginning: "row r: values at 512 x r, scales at 32 768 + 8 x r".
std::string strides_of(const CacheSpec& spec) {
  const as_row_layout l = spec.rows();
  const auto at = [](std::int64_t from, std::int64_t stride, const char* index) {
    const std::string step = fmt::format("{} \xc3\x97 {}", format_count(stride), index);
    return from == 0 ? step : fmt::format("{} + {}", format_count(from), step);
  };
  if (l.format->placement == AS_INTERLEAVED) {
    return fmt::format(
        "row r at {}{}", at(0, l.row, "r"),
        l.heads > 1 ? ", head h behind it at " + at(0, l.head_payload + l.head_scales, "h") : "");
  }
  const bool heads_first = l.format->placement == AS_HND && l.heads > 1;
  const std::int64_t row = heads_first ? l.head_payload : l.payload;
  std::string text = "row r at " + at(0, row, "r");
  if (l.heads > 1) {
    text += ", head h behind it at " +
            at(0, heads_first ? l.rows * l.head_payload : l.head_payload, "h");
  }
  if (l.heads * l.head_scales > 0) {
    text += ", its scales at " +
            at(l.rows * l.payload, heads_first ? l.head_scales : l.heads * l.head_scales, "r");
  }
  if (l.token_scales > 0) {
    text += ", those of all heads at " +
            at(l.rows * (l.payload + l.heads * l.head_scales), l.token_scales, "r");
  }
  return text;
}

std::string bytes_text(std::int64_t bytes) { return format_count(bytes) + " B"; }

}  // namespace

SlabView slab_view(const SessionInfo& info) {
  SlabView view;
  view.stride = info.layout.block_stride;
  if (info.layout.groups.empty()) {
    view.sentence = "The model has no caches: its blocks have no bytes, and nobody takes one.";
    return view;
  }
  const SlabGroup* least = nullptr;
  for (std::size_t g = 0; g < info.layout.groups.size(); ++g) {
    const CacheGroup& from = info.layout.groups[g];
    SlabGroup group;
    group.group = static_cast<int>(g);
    group.name = from.name;
    group.tokens = from.block_tokens;
    group.bytes = from.bytes;
    for (const int s : from.specs) {
      const CacheSpec& spec = info.layout.specs[to_size(s)];
      const int layer = info.config.layers[to_size(spec.layer)];
      group.pages.push_back({layer, spec.name, spec.content, spec.offset, spec.page_bytes,
                             spec.rows().page_used, strides_of(spec),
                             sharing_sentence(info, layer)});
    }
    std::ranges::sort(group.pages, {}, &SlabPage::offset);
    view.groups.push_back(std::move(group));
  }
  for (const SlabGroup& group : view.groups) {
    if (least == nullptr || group.bytes < least->bytes) least = &group;
  }
  view.sentence =
      fmt::format("{} of {}, {} in all; a block belongs to one group at a time",
                  plural(info.usable_blocks(), "block", "blocks"), bytes_text(view.stride),
                  format_bytes(static_cast<double>(info.usable_blocks() * view.stride)));
  if (least != nullptr && least->bytes < view.stride) {
    view.sentence +=
        fmt::format(". {} fills least of it, {:.0f} %", least->name,
                    100.0 * static_cast<double>(least->bytes) / static_cast<double>(view.stride));
  }
  view.sentence += ".";
  return view;
}

std::string slab_page_text(const SlabView& view, const SlabGroup& group, const SlabPage& page,
                           std::int64_t block) {
  std::string text = fmt::format("layer {} \xc2\xb7 {}: {}, {} tokens a block ({})\n", page.layer,
                                 page.name, page.content, group.tokens, group.name);
  text += fmt::format("bytes {}-{} of a block", format_count(page.offset),
                      format_count(page.offset + page.bytes - 1));
  if (page.used < page.bytes) text += ", " + bytes_text(page.bytes - page.used) + " padding";
  text += "\n" + page.where;
  if (!page.sharing.empty()) text += "\n" + page.sharing.substr(1);
  text += fmt::format("\nfrom one block to the next {}", bytes_text(view.stride));
  if (block >= 0) {
    text += fmt::format("\nin block {}: byte {} of the slab", block,
                        format_count(block * view.stride + page.offset));
  }
  return text;
}

}  // namespace attnscope
