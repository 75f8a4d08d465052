#include "engine/session/verify/weight_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <numeric>
#include <utility>

#include "engine/checkpoint/tensor_names.h"
#include "engine/checkpoint/weight_slots.h"
#include "engine/io/content_hash.h"
#include "engine/io/elapsed.h"
#include "engine/model/fp8_blocks.h"
#include "engine/model/numbers.h"
#include "engine/session/verify/verifier.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Bytes that have a hash of their own: small enough to say where a change is, and to share out.
constexpr std::int64_t kPart = std::int64_t{64} << 10;

std::vector<std::int64_t> all_parts(std::int64_t bytes) {
  std::vector<std::int64_t> parts(to_size(ceil_div(bytes, kPart)));
  std::iota(parts.begin(), parts.end(), std::int64_t{0});
  return parts;
}

// Not 0.
std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

WeightWatch::WeightWatch(const SessionParts& parts, const as_threads* threads)
    : parts_(parts), threads_(threads), owned_(parts.ranks), number_(next_number()) {
  const auto begun = std::chrono::steady_clock::now();
  const ModelConfig& config = parts.config;
  const auto running = [&](int published) {
    const auto at = std::ranges::find(config.layers, published);
    return at == config.layers.end() ? -1 : static_cast<int>(at - config.layers.begin());
  };
  for (std::size_t rank = 0; rank < parts.ranks.size(); ++rank) {
    const bool own = static_cast<int>(rank) == config.parallel.rank;
    for (const WeightSlot& slot : weight_slots(config, *parts.ranks[rank])) {
      const int layer = running(slot.layer), r = static_cast<int>(rank);
      const std::string name = own ? slot.name : fmt::format("{} of rank {}", slot.name, rank);
      watch(slot.bf16, slot.size(), 2, name, layer, r, true);
      watch(slot.f32, slot.size(), 4, name, layer, r, true);
      watch(slot.codes, slot.size(), 1, name, layer, r, true);
      if (slot.scales == nullptr) continue;
      watch(slot.scales, slot.num_scales(), 4,
            own ? scale_name(slot.name) : fmt::format("{} of rank {}", scale_name(slot.name), rank),
            layer, r, true);
    }
  }
  for (std::size_t i = 0; i < parts.ropes.size(); ++i) {
    const as_tensor& table = parts.ropes[i].table;
    watch(table.data, as_tensor_numel(&table), 4,
          fmt::format("the rotary table of layer {}", config.layers[i]), static_cast<int>(i),
          config.parallel.rank, false);
  }
  seconds_ += seconds_since(begun);
}

void WeightWatch::watch(const void* data, std::int64_t elements, std::int64_t element_bytes,
                        std::string name, int layer, int rank, bool owned) {
  if (data == nullptr || elements == 0) return;
  const auto* begin = static_cast<const std::uint8_t*>(data);
  const std::int64_t bytes = elements * element_bytes;
  bytes_ += bytes;
  Watched& w = watched_[begin];
  w = {std::move(name), layer, rank, bytes, element_bytes, {}, nullptr};
  const std::vector<std::int64_t> all = all_parts(bytes);
  if (owned) {
    w.writes = std::make_unique<WriteWatch>(begin, to_size(bytes), to_size(kPart));
    static_cast<void>(written(w, all));  // hashed now
  }
  w.hashes = hash(begin, bytes, all);
}

std::vector<std::int64_t> WeightWatch::written(Watched& watched,
                                               std::span<const std::int64_t> parts) {
  std::vector<std::int64_t> some;
  for (const std::int64_t part : parts) {
    if (watched.writes == nullptr || watched.writes->written(to_size(part))) some.push_back(part);
  }
  return some;
}

bool WeightWatch::watches(const void* data) const {
  const auto* at = static_cast<const std::uint8_t*>(data);
  const auto behind = watched_.upper_bound(at);
  if (behind == watched_.begin()) return false;
  const auto& [begin, watched] = *std::prev(behind);
  return at < begin + watched.bytes;
}

std::vector<std::uint64_t> WeightWatch::hash(const std::uint8_t* data, std::int64_t bytes,
                                             std::span<const std::int64_t> parts) const {
  std::vector<std::uint64_t> hashes(parts.size());
  const auto count = to_count(hashes.size());
  // A few parts are not worth waking threads for.
  cpu::parallel_for(
      count < 8 ? nullptr : threads_, count, 4, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t at = parts[to_size(i)] * kPart;
          hashes[to_size(i)] = memory_hash(data + at, to_size(std::min(kPart, bytes - at)));
        }
      });
  return hashes;
}

std::optional<TapResult> WeightWatch::look(Place place, std::span<const std::int64_t> of,
                                           as_op_id op, const std::string& tap) {
  Watched& w = place->second;
  const std::vector<std::int64_t> parts = written(w, of);
  const std::vector<std::uint64_t> now = hash(place->first, w.bytes, parts);
  std::int64_t changed = 0, first = -1;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::uint64_t& was = w.hashes[to_size(parts[i])];
    if (now[i] == was) continue;
    if (changed++ == 0) first = parts[i];
    was = now[i];
  }
  if (changed == 0) return {};
  number_ = next_number();
  const std::int64_t begin = first * kPart / w.element_bytes;
  const std::int64_t elements = w.bytes / w.element_bytes;
  return wrong_result(
      op, tap + kWeightTap, elements, changed,
      fmt::format("{} is no longer what it was when the session began: something wrote to elements "
                  "{} to {} of {} since it was read last{}",
                  w.name, begin, std::min(elements, begin + kPart / w.element_bytes) - 1, elements,
                  changed > 1 ? fmt::format(", and to {} other parts", changed - 1) : ""));
}

void WeightWatch::look_at(const as_tensor& tensor, as_op_id op, const std::string& tap,
                          std::vector<TapResult>& found) {
  if (!present(tensor) || tensor.device != 0) return;
  const auto* begin = static_cast<const std::uint8_t*>(tensor.data);
  const std::uint8_t* end = begin + tensor_bytes(tensor);
  for (auto at = watched_.lower_bound(begin); at != watched_.end() && at->first < end; ++at) {
    if (auto result = look(at, all_parts(at->second.bytes), op, tap))
      found.push_back(std::move(*result));
  }
}

std::vector<TapResult> WeightWatch::before(int layer, const OpParams& params) {
  const auto begun = std::chrono::steady_clock::now();
  std::vector<TapResult> found;
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_IN || tap.kind != AS_TAP_TENSOR) continue;
    look_at(params.tensor(tap.offset), params.op(), tap.name, found);
  }
  OpParams copy = params;
  if (const as_rope* rope = rope_of(copy)) look_at(rope->table, params.op(), "rope", found);
  if (params.op() == parts_.graph->sum.read_by) {
    for (auto at = watched_.begin(); at != watched_.end(); ++at) {
      const Watched& w = at->second;
      if (w.layer != layer || w.rank == parts_.config.parallel.rank) continue;
      auto result = look(at, all_parts(w.bytes), parts_.graph->sum.made_by, "weight");
      if (result) found.push_back(std::move(*result));
    }
  }
  seconds_ += seconds_since(begun);
  return found;
}

std::optional<TapResult> WeightWatch::before_embedding(std::span<const std::int32_t> tokens) {
  const auto begun = std::chrono::steady_clock::now();
  const void* data = parts_.weights->embedding();
  const auto place = watched_.find(static_cast<const std::uint8_t*>(data));
  const std::int64_t row = parts_.config.hidden * place->second.element_bytes;
  std::vector<std::int64_t> parts;
  for (const std::int32_t token : tokens) {
    for (std::int64_t p = token * row / kPart; p * kPart < (token + 1) * row; ++p) {
      parts.push_back(p);
    }
  }
  std::ranges::sort(parts);
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  auto found = look(place, parts, AS_OP_ATTN_NORM, "embedding");
  seconds_ += seconds_since(begun);
  return found;
}

}  // namespace attnscope
