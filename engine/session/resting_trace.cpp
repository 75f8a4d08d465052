#include "engine/session/resting_trace.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory_resource>
#include <new>
#include <utility>

namespace attnscope {
namespace {

constexpr std::size_t kLarge = 4096;  // bytes of a tap; smaller ones stay as they are
constexpr std::size_t kAligned = 64;

std::size_t bytes_of(const TapCopy& tap) {
  return tap.value_bytes.size() + tap.reference_bytes.size();
}

std::size_t bytes_of(const AttentionCopy& a) {
  return (a.logits.size() + a.weights.size()) * sizeof(float) + a.window_rows.bytes.size() +
         a.extra_rows.bytes.size();
}

// Gives out the memory once, from its beginning.
class Pieces : public std::pmr::memory_resource {
 public:
  explicit Pieces(std::shared_ptr<RestingMemory> memory) : memory_(std::move(memory)) {}
  const std::shared_ptr<RestingMemory>& memory() const { return memory_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    if (bytes > memory_->bytes() - used_) throw std::bad_alloc();
    std::uint8_t* piece = memory_->data() + used_;
    used_ = std::min((used_ + bytes + kAligned - 1) / kAligned * kAligned, memory_->bytes());
    return piece;
  }
  void do_deallocate(void*, std::size_t, std::size_t) override {}  // all at once, with the memory
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::shared_ptr<RestingMemory> memory_;
  std::size_t used_ = 0;
};

// In pieces; small numbers and lists stay as they are.
std::shared_ptr<const AttentionCopy> moved(const AttentionCopy& from,
                                           const std::shared_ptr<Pieces>& pieces) {
  struct Held {
    std::shared_ptr<Pieces> pieces;
    AttentionCopy copy;
  };
  const auto rows = [&](const RowsRead& read) {
    return RowsRead{read.slots, read.steps, read.row_bytes, {read.bytes, pieces.get()}};
  };
  auto held = std::make_shared<Held>(Held{pieces,
                                          {from.heads,
                                           from.window,
                                           from.extra,
                                           from.slots,
                                           from.window_len,
                                           from.extra_len,
                                           {from.logits, pieces.get()},
                                           {from.weights, pieces.get()},
                                           from.sink_mass,
                                           from.sinks,
                                           rows(from.window_rows),
                                           rows(from.extra_rows),
                                           from.lse_error}});
  return {held, &held->copy};
}

// Where bytes of the trace lie in its copy, and what keeps them alive there.
struct Moved {
  std::size_t size = 0;
  std::uint8_t* to = nullptr;
  std::shared_ptr<const void> owner;
};

class Mover {
 public:
  Mover(const StepTrace& trace, std::shared_ptr<Pieces> pieces)
      : out_(trace), pieces_(std::move(pieces)) {}

  StepTrace run() {
    for (std::shared_ptr<const OpTrace>& op : out_.ops) op = moved_op(*op);
    return std::move(out_);
  }

 private:
  std::shared_ptr<const OpTrace> moved_op(const OpTrace& from) {
    auto op = std::make_shared<OpTrace>();
    op->place = from.place;
    op->lane = from.lane;
    op->microseconds = from.microseconds;
    op->launches = from.launches;
    op->rows = from.rows;
    op->attention = from.attention ? moved(*from.attention, pieces_) : nullptr;
    op->results = from.results;
    op->worst = from.worst;
    op->budget_used = from.budget_used;
    op->taps.reserve(from.taps.size());
    for (const TapCopy& tap : from.taps) op->taps.push_back(moved_tap(tap, op));
    return op;
  }

  TapCopy moved_tap(const TapCopy& from, const std::shared_ptr<const OpTrace>& op) {
    TapCopy tap;
    tap.name = from.name;
    tap.axes = from.axes;
    tap.rule = from.rule;
    tap.output = from.output;
    tap.value = from.value;
    tap.reference = from.reference;
    tap.stats = from.stats;
    tap.owner = from.owner;
    const bool large = bytes_of(from) >= kLarge;
    const auto put = [&](const std::vector<std::uint8_t>& bytes, std::vector<std::uint8_t>& own) {
      if (bytes.empty()) return;
      Moved& moved = moved_[bytes.data()];
      if (large) {
        moved = {bytes.size(), static_cast<std::uint8_t*>(pieces_->allocate(bytes.size())),
                 pieces_->memory()};
        std::memcpy(moved.to, bytes.data(), bytes.size());
      } else {
        own = bytes;
        moved = {own.size(), own.data(),
                 op};  // a vector that is moved keeps its bytes where they are
      }
    };
    put(from.value_bytes, tap.value_bytes);
    put(from.reference_bytes, tap.reference_bytes);
    for (as_tensor* t : {&tap.value, &tap.reference}) {
      const auto* data = static_cast<const std::uint8_t*>(t->data);
      auto it = moved_.upper_bound(data);
      if (data == nullptr || it == moved_.begin()) continue;
      --it;
      const Moved& moved = it->second;
      const auto offset = static_cast<std::size_t>(data - it->first);
      if (offset >= moved.size) continue;  // a weight, or of another step
      t->data = moved.to + offset;
      if (moved.owner != op) tap.owner = moved.owner;
    }
    return tap;
  }

  StepTrace out_;
  std::shared_ptr<Pieces> pieces_;
  std::map<const std::uint8_t*, Moved> moved_;  // by where bytes begin in the trace
};

}  // namespace

std::shared_ptr<const StepTrace> resting(const StepTrace& trace,
                                         const std::shared_ptr<RestingFile>& file) {
  std::size_t bytes = 0;
  for (const auto& op : trace.ops) {
    for (const TapCopy& tap : op->taps) {
      if (bytes_of(tap) >= kLarge) bytes += bytes_of(tap) + 2 * kAligned;
    }
    if (op->attention) bytes += bytes_of(*op->attention) + 4 * kAligned;
  }
  if (bytes == 0) return nullptr;
  auto memory = std::make_shared<RestingMemory>(bytes, file);
  auto out =
      std::make_shared<const StepTrace>(Mover(trace, std::make_shared<Pieces>(memory)).run());
  return memory->rest(0, memory->bytes()) ? out : nullptr;
}

}  // namespace attnscope
