#include "app/common/views/stream_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/common/format.h"

namespace attnscope {
namespace {

// Enough to tell hashes apart, short enough for a column.
std::string short_hash(const std::string& hash) {
  return hash.size() <= 16 ? hash : hash.substr(0, 7) + ".." + hash.substr(hash.size() - 7);
}

std::string where(const KvStreamEntry& entry) {
  std::string text = entry.medium;
  if (!entry.kind.empty()) text += ", " + entry.kind;
  if (!entry.adapter.empty()) text += ", adapter " + entry.adapter;
  return text;
}

}  // namespace

StreamView stream_view(const KvStream& stream, const KvStreamMap& map) {
  StreamView view;
  std::set<std::int32_t> groups;
  for (const auto& [key, entry] : map.entries()) {
    const auto& [hash, group] = key;
    groups.insert(group);
    view.rows.push_back({.hash = short_hash(hash),
                         .parent = short_hash(entry.parent),
                         .group = group < 0 ? "not said" : std::to_string(group),
                         .ends_with = entry.ends_with,
                         .where = where(entry),
                         .prefix = entry.tokens,
                         .blocks = entry.blocks,
                         .batch = entry.batch,
                         .fresh = entry.batch == map.batch()});
  }
  std::ranges::stable_sort(view.rows, std::greater<>(), &StreamRow::batch);
  const KvStreamCounts& n = map.counts();
  const auto batches = static_cast<std::int64_t>(stream.batches.size());
  view.sentence = fmt::format(
      "After batch {} of {}: {} keys find {} blocks in {} {}; {} events stored, {} removed, {} "
      "cleared.",
      format_count(map.batch() + 1), format_count(batches),
      format_count(static_cast<std::int64_t>(view.rows.size())), format_count(map.blocks()),
      groups.size(), groups.size() == 1 ? "group" : "groups", format_count(n.stored),
      format_count(n.removed), format_count(n.cleared));
  if (n.unknown > 0) {
    view.sentence += fmt::format(
        " {} removed content that was never stored: the stream begins late, or lost batches.",
        format_count(n.unknown));
  }
  return view;
}

}  // namespace attnscope
