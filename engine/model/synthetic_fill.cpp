#include "engine/model/synthetic_fill.h"

#include <algorithm>
#include <bit>

namespace attnscope {
namespace {

constexpr std::int64_t kFillChunk = std::int64_t{1} << 17;  // elements a thread takes at a time

// Four independent uniform 16-bit fields have variance (2^32 - 1) / 3.
constexpr float kInverseSigma = 2.6428996e-05f;  // 1 / sqrt((2^32 - 1) / 3)
constexpr std::int32_t kMean = 2 * 65535;

bf16_t to_bf16(float x) {
  // Finite values only: round to nearest even by adding half of the dropped part.
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace

std::uint64_t tensor_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t h = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : name) {
    h ^= static_cast<unsigned char>(c);
    h *= 0x100000001b3ULL;
  }
  return mix64(h ^ mix64(seed + 0x9e3779b97f4a7c15ULL));
}

float approx_normal(std::uint64_t hash) {
  const auto sum = static_cast<std::int32_t>((hash & 0xffff) + ((hash >> 16) & 0xffff) +
                                             ((hash >> 32) & 0xffff) + (hash >> 48));
  return static_cast<float>(sum - kMean) * kInverseSigma;
}

float uniform(std::uint64_t hash) {
  const auto top = static_cast<std::int32_t>(hash >> 40);  // 24 bits
  return static_cast<float>(top - (1 << 23)) * (1.0f / (1 << 23));
}

void FillQueue::normal(bf16_t* data, std::int64_t count, std::string_view name, double scale,
                       double offset) {
  Chunk chunk;
  chunk.bf16 = data;
  chunk.key = tensor_key(seed_, name);
  chunk.scale = static_cast<float>(scale);
  chunk.offset = static_cast<float>(offset);
  push(chunk, count);
}

void FillQueue::uniform(float* data, std::int64_t count, std::string_view name, double scale) {
  Chunk chunk;
  chunk.f32 = data;
  chunk.key = tensor_key(seed_, name);
  chunk.scale = static_cast<float>(scale);
  push(chunk, count);
}

void FillQueue::push(Chunk chunk, std::int64_t count) {
  for (std::int64_t begin = 0; begin < count; begin += kFillChunk) {
    chunk.begin = begin;
    chunk.end = std::min(begin + kFillChunk, count);
    chunks_.push_back(chunk);
  }
}

void FillQueue::fill(const Chunk& c) {
  for (std::int64_t i = c.begin; i < c.end; ++i) {
    const std::uint64_t hash = element_hash(c.key, static_cast<std::uint64_t>(i));
    if (c.bf16 != nullptr) {
      c.bf16[i] = to_bf16(c.offset + c.scale * approx_normal(hash));
    } else {
      c.f32[i] = c.scale * attnscope::uniform(hash);
    }
  }
}

void FillQueue::run(const as_threads* threads) const {
  const auto count = static_cast<std::int64_t>(chunks_.size());
  const auto body = [](void* ctx, std::int64_t begin, std::int64_t end) {
    const auto& chunks = *static_cast<const std::vector<Chunk>*>(ctx);
    for (std::int64_t i = begin; i < end; ++i) fill(chunks[static_cast<std::size_t>(i)]);
  };
  void* ctx = const_cast<std::vector<Chunk>*>(&chunks_);
  if (threads != nullptr && threads->parallel_for != nullptr) {
    threads->parallel_for(threads->pool, count, 1, body, ctx);
  } else {
    body(ctx, 0, count);
  }
}

}  // namespace attnscope
