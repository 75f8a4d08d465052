#include "engine/cache/block_hash.h"

#include <fmt/format.h>

#include <bit>
#include <string_view>

namespace attnscope {
namespace {

// J.-P. Aumasson, D. J. Bernstein: SipHash, a fast short-input PRF (2012); words of 64 bits.
class SipState {
 public:
  void word(std::uint64_t w) {
    v3_ ^= w;
    round();
    round();
    v0_ ^= w;
    ++words_;
  }
  void bytes(std::string_view text) {
    word(text.size());
    for (std::size_t i = 0; i < text.size(); i += 8) {
      std::uint64_t w = 0;
      for (std::size_t j = i; j < text.size() && j < i + 8; ++j) {
        w |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[j])) << (8 * (j - i));
      }
      word(w);
    }
  }
  BlockHash finish() {
    word(words_);
    BlockHash out;
    v2_ ^= 0xee;
    for (int i = 0; i < 4; ++i) round();
    out.low = v0_ ^ v1_ ^ v2_ ^ v3_;
    v1_ ^= 0xdd;
    for (int i = 0; i < 4; ++i) round();
    out.high = v0_ ^ v1_ ^ v2_ ^ v3_;
    return out;
  }

 private:
  void round() {
    v0_ += v1_;
    v2_ += v3_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v1_;
    v0_ += v3_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ = std::rotl(v2_, 32);
  }

  static constexpr std::uint64_t kKey0 = 0x9e3779b97f4a7c15;  // any; part of no file format
  static constexpr std::uint64_t kKey1 = 0xd1b54a32d192ed03;
  std::uint64_t v0_ = 0x736f6d6570736575 ^ kKey0;
  std::uint64_t v1_ = 0x646f72616e646f6d ^ kKey1 ^ 0xee;
  std::uint64_t v2_ = 0x6c7967656e657261 ^ kKey0;
  std::uint64_t v3_ = 0x7465646279746573 ^ kKey1;
  std::uint64_t words_ = 0;
};

}  // namespace

std::string hash_text(const BlockHash& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

std::vector<ExtraKey> block_extras(const HashExtras& extras, std::int64_t start, std::int64_t end,
                                   std::int64_t& item) {
  std::vector<ExtraKey> keys;
  if (!extras.adapter.empty()) keys.push_back({extras.adapter, std::nullopt});
  const auto count = static_cast<std::int64_t>(extras.media.size());
  if (item < 0) item = count - 1;
  while (item >= 0 && item < count) {
    const MediaItem& m = extras.media[static_cast<std::size_t>(item)];
    if (m.offset >= end) break;
    if (m.offset + m.length > start) {
      keys.push_back({m.identifier, m.offset - start});
      if (m.offset + m.length > end) break;  // goes on in the next block
    }
    ++item;
  }
  if (start == 0 && !extras.salt.empty()) keys.push_back({extras.salt, std::nullopt});
  return keys;
}

BlockHash hash_block(const BlockHash* parent, std::span<const std::int32_t> tokens,
                     std::span<const ExtraKey> extras) {
  SipState state;
  if (parent != nullptr) {
    state.word(parent->low);
    state.word(parent->high);
  }
  const std::size_t pairs = tokens.size() / 2 * 2;
  for (std::size_t i = 0; i < pairs; i += 2) {
    state.word(static_cast<std::uint32_t>(tokens[i]) |
               static_cast<std::uint64_t>(static_cast<std::uint32_t>(tokens[i + 1])) << 32);
  }
  if (pairs < tokens.size()) state.word(static_cast<std::uint32_t>(tokens[pairs]));
  for (const ExtraKey& extra : extras) {
    state.bytes(extra.name);
    state.word(extra.offset ? static_cast<std::uint64_t>(*extra.offset) : ~std::uint64_t{0});
  }
  return state.finish();
}

void HashChain::extend(const std::vector<std::int32_t>& tokens, std::int64_t size,
                       const HashExtras& extras) {
  const auto full = static_cast<std::int64_t>(tokens.size()) / size;
  if (full <= this->size()) return;
  if (full > this->size() + 1) hashes_.reserve(static_cast<std::size_t>(full));
  std::vector<ExtraKey> keys;
  for (std::int64_t i = this->size(); i < full; ++i) {
    const std::int64_t start = i * size;
    if (!extras.empty()) keys = block_extras(extras, start, start + size, item_);
    const std::span<const std::int32_t> block(tokens.data() + start,
                                              static_cast<std::size_t>(size));
    hashes_.push_back(hash_block(i == 0 ? nullptr : &hashes_.back(), block, keys));
  }
}

}  // namespace attnscope
