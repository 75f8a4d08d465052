#include "app/views/kv_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/io/json_file.h"

namespace attnscope {
namespace {

constexpr std::size_t kLargestStream = std::size_t{1} << 30;
constexpr std::int64_t kShownTokens = 8;

// The last token ids of block i of an event.
std::string last_tokens(const KvEvent& event, std::size_t i) {
  const auto size = static_cast<std::int64_t>(event.tokens.size());
  const std::int64_t end = std::min(
      size, (static_cast<std::int64_t>(i) + 1) * std::max<std::int64_t>(event.block_tokens, 0));
  const std::int64_t begin = std::max<std::int64_t>(
      {0, end - kShownTokens,
       static_cast<std::int64_t>(i) * std::max<std::int64_t>(event.block_tokens, 0)});
  std::string text;
  for (std::int64_t t = begin; t < end; ++t) {
    text += fmt::format("{}{}", t == begin ? "" : " ", event.tokens[static_cast<std::size_t>(t)]);
  }
  return text;
}

}  // namespace

Result<std::shared_ptr<const KvStream>> read_kv_stream(const std::string& path) {
  Result<std::string> bytes = read_text_file(path, kLargestStream);
  if (!bytes) return bytes.error();
  Result<std::vector<KvEventBatch>> batches = parse_kv_events(*bytes, path);
  if (!batches) return batches.error();
  return std::make_shared<const KvStream>(KvStream{path, std::move(*batches)});
}

void KvStreamMap::seek(std::int64_t batch) {
  const auto size = static_cast<std::int64_t>(stream_->batches.size());
  batch = std::clamp<std::int64_t>(batch, -1, size - 1);
  if (batch < batch_) {
    entries_.clear();
    counts_ = {};
    batch_ = -1;
    blocks_ = 0;
  }
  while (batch_ < batch) {
    ++batch_;
    const KvEventBatch& batch_now = stream_->batches[static_cast<std::size_t>(batch_)];
    for (const KvEvent& e : batch_now.events) apply(e, batch_now.rank);
  }
}

void KvStreamMap::apply(const KvEvent& event, std::int64_t rank) {
  switch (event.kind) {
    case KvEventKind::kBlockStored:
      ++counts_.stored;
      store(event, rank);
      return;
    case KvEventKind::kBlockRemoved: {
      ++counts_.removed;
      bool known = true;
      for (const std::string& hash : event.hashes) {
        known &= remove({hash, event.group, rank, event.medium});
      }
      counts_.unknown += known ? 0 : 1;
      return;
    }
    case KvEventKind::kAllBlocksCleared:
      ++counts_.cleared;
      std::erase_if(entries_, [&](const auto& item) {
        if (item.first.rank != rank) return false;
        blocks_ -= item.second.blocks;
        return true;
      });
      return;
  }
}

bool KvStreamMap::remove(const Key& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  --blocks_;
  if (--found->second.blocks == 0) entries_.erase(found);
  return true;
}

void KvStreamMap::store(const KvEvent& event, std::int64_t rank) {
  std::string parent = event.parent.value_or("");
  std::int64_t before = 0;
  if (!parent.empty()) {
    const auto found = entries_.find({parent, event.group, rank, event.medium});
    before = found == entries_.end() ? -1 : found->second.tokens;
  }
  for (std::size_t i = 0; i < event.hashes.size(); ++i) {
    KvStreamEntry& entry = entries_[{event.hashes[i], event.group, rank, event.medium}];
    ++entry.blocks;
    ++blocks_;
    entry.batch = batch_;
    before = before < 0 ? -1 : before + event.block_tokens;
    entry.tokens = before;
    entry.parent = parent;
    entry.ends_with = last_tokens(event, i);
    entry.adapter = event.adapter;
    entry.kind = event.spec_kind;
    parent = event.hashes[i];
  }
}

}  // namespace attnscope
