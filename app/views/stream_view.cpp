#include "app/views/stream_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "app/text/format.h"

namespace attnscope {
namespace {

// Enough to tell hashes apart, short enough for a column.
std::string short_hash(const std::string& hash) {
  return hash.size() <= 16 ? hash
                           : fmt::format("{}..{}", hash.substr(0, 7), hash.substr(hash.size() - 7));
}

std::string where(const KvStreamMap::Key& key, const KvStreamEntry& entry) {
  std::vector<std::string> parts;
  if (key.rank >= 0) parts.push_back(fmt::format("rank {}", key.rank));
  if (!key.medium.empty()) parts.push_back(key.medium);
  if (!entry.kind.empty()) parts.push_back(entry.kind);
  if (!entry.adapter.empty()) parts.push_back("adapter " + entry.adapter);
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

StreamView stream_view(const KvStream& stream, const KvStreamMap& map) {
  StreamView view;
  std::set<std::int32_t> groups;
  for (const auto& [key, entry] : map.entries()) {
    groups.insert(key.group);
    view.rows.push_back({.hash = short_hash(key.hash),
                         .parent = short_hash(entry.parent),
                         .group = key.group < 0 ? "not said" : std::to_string(key.group),
                         .ends_with = entry.ends_with,
                         .where = where(key, entry),
                         .prefix = entry.tokens,
                         .blocks = entry.blocks,
                         .batch = entry.batch,
                         .fresh = entry.batch == map.batch()});
  }
  std::ranges::stable_sort(view.rows, std::greater<>(), &StreamRow::batch);
  const KvStreamCounts& n = map.counts();
  const auto batches = static_cast<std::int64_t>(stream.batches.size());
  view.sentence = fmt::format(
      "After batch {} of {}: {} {} in {}; {} stored, {} removed, {} cleared.",
      format_count(map.batch() + 1), format_count(batches),
      plural(std::ssize(view.rows), "key finds", "keys find"),
      plural(map.blocks(), "block", "blocks"), plural(std::ssize(groups), "group", "groups"),
      plural(n.stored, "event", "events"), format_count(n.removed), format_count(n.cleared));
  if (n.unknown > 0) {
    view.sentence += fmt::format(
        " {} removed content that was never stored: the stream begins late, or lost batches.",
        format_count(n.unknown));
  }
  return view;
}

}  // namespace attnscope
