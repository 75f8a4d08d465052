#include "engine/session/decode_plan.h"

#include <algorithm>
#include <cstring>

#include "engine/backend/call_op.h"
#include "engine/model/numbers.h"
#include "engine/session/output_poison.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Which stream an op of a compressed layer lies on, which streams start with it, and which it waits
// for.
struct Branch {
  int stream = 0;
  std::vector<int> starts;
  std::vector<int> after;
};

Branch branch_of(as_op_id op, LayerType type) {
  if (type == LayerType::kSwa) return {};
  const bool c4 = type == LayerType::kC4A;
  switch (op) {
    case AS_OP_Q_B_PROJ:
      return {0, c4 ? std::vector{1, 2, 3} : std::vector{1}, {}};
    case AS_OP_COMPRESSOR_PROJ:
    case AS_OP_COMPRESSOR_STATE:
    case AS_OP_COMPRESS_INSERT:
      return {1, {}, {}};
    case AS_OP_INDEXER_COMPRESSOR_PROJ:
    case AS_OP_INDEXER_COMPRESSOR_STATE:
    case AS_OP_INDEXER_COMPRESS_INSERT:
      return {2, {}, {}};
    case AS_OP_INDEXER_LOGITS:
      return {3, {}, {2}};
    case AS_OP_INDEXER_Q_PROJ:
    case AS_OP_INDEXER_WEIGHTS_PROJ:
    case AS_OP_INDEXER_Q:
    case AS_OP_INDEXER_TOPK:
    case AS_OP_TOPK_TO_SLOTS:
      return {3, {}, {}};
    case AS_OP_SPARSE_ATTENTION:
      return {0, {}, c4 ? std::vector{1, 3} : std::vector{1}};
    default:
      return {};
  }
}

template <class T>
as_tensor whole(std::vector<T>& v) {
  return make_tensor(v.data(), {static_cast<std::int64_t>(v.size())});
}

// rows x from_columns into rows x to_columns, the rest filled.
template <class T>
void pad_rows(const std::vector<T>& from, std::int64_t rows, std::int64_t from_columns,
              std::vector<T>& to, std::int64_t to_columns, T rest) {
  std::fill(to.begin(), to.end(), rest);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(from.begin() + r * from_columns, std::min(from_columns, to_columns),
                to.begin() + r * to_columns);
  }
}

}  // namespace

DecodePlan::DecodePlan(const PlanShape& shape, const SessionParts& parts, const Slab& slab,
                       Residency& residency)
    : shape_(shape),
      parts_(parts),
      slab_(slab),
      residency_(residency),
      device_(residency.device()) {
  const CacheLayout& layout = parts.layout;
  const auto groups = static_cast<std::int64_t>(layout.groups.size());
  const auto swa = static_cast<std::int64_t>(layout.swa_groups.size());
  const std::int64_t tokens = shape.tokens;
  StepMetadata& m = metadata_;
  m.live.assign(to_size(shape.live), -1);
  m.columns = shape.columns;
  m.tables.assign(to_size(groups * shape.live * shape.columns), 0);
  m.positions.assign(to_size(tokens), 0);
  m.request_of.assign(to_size(tokens), -1);
  m.slots.assign(to_size(groups * tokens), -1);
  m.c4_slots.assign(to_size(tokens), -1);
  m.c128_slots.assign(to_size(tokens), -1);
  m.c4_lens.assign(to_size(tokens), 0);
  m.swa_indices.assign(to_size(swa * tokens * parts.config.window), -1);
  m.swa_lens.assign(to_size(tokens), 0);
  m.c128_width = shape.c128;
  m.c128_indices.assign(to_size(tokens * shape.c128), -1);
  m.c128_lens.assign(to_size(tokens), 0);
}

DecodePlan::~DecodePlan() {
  for (const auto& [host, memory] : memory_) device_.release(memory);
  if (packed_ != nullptr) device_.release(packed_);
}

Result<std::unique_ptr<DecodePlan>> DecodePlan::make(const PlanShape& shape,
                                                     const SessionParts& parts, const Slab& slab,
                                                     const LaneSelector& lanes,
                                                     Residency& residency) {
  std::unique_ptr<DecodePlan> plan(new DecodePlan(shape, parts, slab, residency));
  if (auto ok = plan->build(lanes); !ok) return ok.error();
  return plan;
}

Result<void> DecodePlan::build(const LaneSelector& lanes) {
  std::size_t total = 0;
  const auto piece = [&](auto& v) {
    if (v.empty()) return;
    const std::size_t bytes = v.size() * sizeof(v[0]);
    pieces_.push_back({v.data(), bytes, total});
    total += (bytes + 255) / 256 * 256;
  };
  StepMetadata& m = metadata_;
  piece(m.tables);
  piece(m.positions);
  piece(m.request_of);
  piece(m.slots);
  piece(m.c4_slots);
  piece(m.c128_slots);
  piece(m.c4_lens);
  piece(m.swa_indices);
  piece(m.swa_lens);
  piece(m.c128_indices);
  piece(m.c128_lens);
  auto packed = device_.allocate(total);
  if (!packed) return packed.error();
  packed_ = static_cast<unsigned char*>(*packed);
  packing_.resize(total);
  // Twice: the first round lets every tensor of the frame grow to its largest layer.
  for (int round = 0; round < 2; ++round) {
    steps_.clear();
    as_tensor hidden = frame_.make(Act::kHidden, AS_BF16, {shape_.tokens, parts_.config.hidden});
    if (round == 1) {
      if (auto ok = translate(hidden); !ok) return ok;
      hidden_in_ = hidden;
    }
    for (int layer = 0; layer < parts_.config.num_layers(); ++layer) {
      for (const as_op_id op : layer_ops(parts_.config.type(layer))) {
        if (auto ok = add(op, layer, lanes); !ok) return ok;
      }
      frame_.swap(Act::kHidden, Act::kHiddenOut);
    }
    frame_.make(Act::kLast, AS_BF16, {shape_.tokens, parts_.config.hidden});
    for (const as_op_id op : head_ops()) {
      if (auto ok = add(op, -1, lanes); !ok) return ok;
    }
    // An odd number of layers leaves the two hidden tensors swapped.
    if (round == 0 && parts_.config.num_layers() % 2 == 1) {
      frame_.swap(Act::kHidden, Act::kHiddenOut);
    }
  }
  for (Step& step : steps_) {
    if (auto ok = translate(step.params); !ok) return ok;
  }
  // Padded tokens never get a hidden state.
  if (auto ok = device_.fill(hidden_in_.data, 0, tensor_bytes(hidden_in_)); !ok) return ok;
  hidden_out_ = frame_.get(Act::kHidden);
  last_ = frame_.get(Act::kLast);
  if (auto ok = translate(hidden_out_); !ok) return ok;
  return translate(last_);
}

Result<void> DecodePlan::add(as_op_id op, int layer, const LaneSelector& lanes) {
  const PagedSource source(parts_.layout, slab_, metadata_, parts_.config.window);
  OpContext context;
  context.config = &parts_.config;
  context.weights = parts_.weights.get();
  context.ropes = &parts_.ropes;
  context.positions = whole(metadata_.positions);
  context.request_of = whole(metadata_.request_of);
  context.logits_width = shape_.logits;
  Step step;
  step.op = op;
  step.layer = layer;
  if (layer >= 0) {
    Branch branch = branch_of(op, parts_.config.type(layer));
    step.branch = branch.stream;
    step.starts = std::move(branch.starts);
    step.after = std::move(branch.after);
  }
  step.params = layer_op_params(op, layer, context, frame_, source);
  step.function = lanes.function(op);
  steps_.push_back(std::move(step));
  return {};
}

Result<void> DecodePlan::translate(as_tensor& tensor) {
  if (!present(tensor)) return {};
  for (const Piece& piece : pieces_) {
    const auto* begin = static_cast<const char*>(piece.host);
    const auto* at_tensor = static_cast<const char*>(tensor.data);
    if (at_tensor < begin || at_tensor >= begin + piece.bytes) continue;
    tensor.data = packed_ + piece.offset + (at_tensor - begin);
    tensor.device = 1;
    return {};
  }
  if (residency_.is_constant(tensor.data)) {
    auto there = residency_.constant(tensor);
    if (!there) return there.error();
    tensor = *there;
    return {};
  }
  void*& memory = memory_[tensor.data];
  if (memory == nullptr) {
    std::size_t bytes = tensor_bytes(tensor);
    // The same memory serves other layers, where it may be larger.
    for (const Step& step : steps_) {
      const as_op_info& info = step.params.info();
      for (std::uint32_t i = 0; i < info.num_taps; ++i) {
        if (info.taps[i].kind != AS_TAP_TENSOR) continue;
        const as_tensor& other = step.params.tensor(info.taps[i].offset);
        if (other.data == tensor.data) bytes = std::max(bytes, tensor_bytes(other));
      }
    }
    auto made = device_.allocate(bytes);
    if (!made) {
      memory_.erase(tensor.data);
      return made.error();
    }
    memory = *made;
  }
  tensor.data = memory;
  tensor.device = 1;
  return {};
}

Result<void> DecodePlan::translate(OpParams& params) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind == AS_TAP_CACHE) {
      params.cache(tap.offset) = residency_.on_device(params.cache(tap.offset));
    } else if (auto ok = translate(params.tensor(tap.offset)); !ok) {
      return ok;
    }
  }
  if (as_rope* rope = rope_of(params); rope != nullptr && present(rope->table)) {
    auto table = residency_.constant(rope->table);
    if (!table) return table.error();
    rope->table = *table;
  }
  return {};
}

void DecodePlan::pad(const StepMetadata& step) {
  const auto groups = static_cast<std::int64_t>(parts_.layout.groups.size());
  const auto swa = static_cast<std::int64_t>(parts_.layout.swa_groups.size());
  const std::int64_t tokens = step.num_tokens_in_step();
  const std::int64_t window = parts_.config.window;
  StepMetadata& m = metadata_;
  std::fill(m.tables.begin(), m.tables.end(), 0);
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t r = 0; r < step.num_live(); ++r) {
      std::copy_n(step.tables.begin() + (g * step.num_live() + r) * step.columns,
                  std::min(step.columns, shape_.columns),
                  m.tables.begin() + (g * shape_.live + r) * shape_.columns);
    }
  }
  const auto one = [&](const auto& from, auto& to, auto rest) {
    pad_rows(from, from.empty() ? 0 : 1, static_cast<std::int64_t>(from.size()), to,
             static_cast<std::int64_t>(to.size()), rest);
  };
  one(step.positions, m.positions, std::int64_t{0});
  one(step.request_of, m.request_of, std::int32_t{-1});
  pad_rows(step.slots, groups, tokens, m.slots, shape_.tokens, std::int64_t{-1});
  one(step.c4_slots, m.c4_slots, std::int64_t{-1});
  one(step.c128_slots, m.c128_slots, std::int64_t{-1});
  one(step.c4_lens, m.c4_lens, std::int32_t{0});
  pad_rows(step.swa_indices, swa, tokens * window, m.swa_indices, shape_.tokens * window,
           std::int32_t{-1});
  one(step.swa_lens, m.swa_lens, std::int32_t{0});
  if (shape_.c128 > 0) {
    pad_rows(step.c128_indices, tokens, step.c128_width, m.c128_indices, shape_.c128,
             std::int32_t{-1});
  }
  one(step.c128_lens, m.c128_lens, std::int32_t{0});
}

Result<void> DecodePlan::begin(const StepMetadata& step, const as_tensor& hidden) {
  pad(step);
  for (const Piece& piece : pieces_) {
    std::memcpy(packing_.data() + piece.offset, piece.host, piece.bytes);
  }
  if (auto ok = residency_.upload_blocks(); !ok) return ok;
  if (auto ok = device_.upload(packed_, packing_.data(), packing_.size()); !ok) return ok;
  for (std::size_t g = 0; g < parts_.layout.groups.size(); ++g) {
    for (std::int64_t t = 0; t < step.num_tokens_in_step(); ++t) {
      const std::int64_t slot = step.slots[g * to_size(step.num_tokens_in_step()) + to_size(t)];
      if (slot >= 0) residency_.device_wrote(slot / parts_.layout.groups[g].block_tokens);
    }
  }
  timed_.clear();
  ++begun_;
  return device_.upload(hidden_in_.data, hidden.data, tensor_bytes(hidden));
}

Result<void> DecodePlan::call(const Step& step, int branch) {
  as_call context = host_call(nullptr);
  context.stream = device_.stream(branch);
  const auto event = 2 * static_cast<std::size_t>(&step - steps_.data());
  if (auto ok = device_.mark(branch, event); !ok) return ok;
  if (auto ok = call_op(step.function, step.params.data(), context); !ok) return ok;
  return device_.mark(branch, event + 1);
}

// Every token of a decode step is sampled from.
Result<void> DecodePlan::last_hidden() {
  return device_.copy(last_.data, hidden_out_.data, tensor_bytes(last_));
}

Result<void> DecodePlan::run(int layer, as_op_id op, bool poison) {
  const auto step = std::find_if(steps_.begin(), steps_.end(),
                                 [&](const Step& s) { return s.layer == layer && s.op == op; });
  if (op == AS_OP_FINAL_NORM) {
    if (auto ok = last_hidden(); !ok) return ok;
  }
  const as_op_info& info = step->params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (!poison || tap.kind != AS_TAP_TENSOR || tap.direction != AS_TAP_OUT) continue;
    const as_tensor& t = step->params.tensor(tap.offset);
    if (!present(t)) continue;
    const std::uint8_t byte = poison_byte(tap, t.dtype, (begun_ + layer) % 2 != 0);
    if (auto ok = device_.fill(t.data, byte, tensor_bytes(t)); !ok) return ok;
  }
  timed_.push_back(static_cast<std::size_t>(step - steps_.begin()));
  return call(*step, 0);
}

Result<void> DecodePlan::put_all() {
  for (const Step& step : steps_) {
    if (step.op == AS_OP_FINAL_NORM) {
      if (auto ok = last_hidden(); !ok) return ok;
    }
    for (const int started : step.starts) {
      if (auto ok = device_.order(started, step.branch); !ok) return ok;
    }
    for (const int on : step.after) {
      if (auto ok = device_.order(step.branch, on); !ok) return ok;
    }
    if (auto ok = call(step, step.branch); !ok) return ok;
  }
  return {};
}

Result<void> DecodePlan::run_all() {
  for (std::size_t i = 0; i < steps_.size(); ++i) timed_.push_back(i);
  // The first run lets workspaces grow: nothing may be allocated while a graph is recorded.
  if (!ran_) {
    ran_ = true;
    return put_all();
  }
  if (!graph_) {
    auto graph = device_.record([&] { return put_all(); });
    if (!graph) return graph.error();
    graph_ = *graph;
  }
  return device_.replay(*graph_);
}

Result<void> DecodePlan::fetch(int layer, const OpParams& host, bool inputs) {
  const auto step = std::find_if(steps_.begin(), steps_.end(), [&](const Step& s) {
    return s.layer == layer && s.op == host.op();
  });
  const as_op_info& info = host.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind != AS_TAP_TENSOR || (tap.direction == AS_TAP_IN && !inputs)) continue;
    const as_tensor& to = host.tensor(tap.offset);
    const as_tensor& from = step->params.tensor(tap.offset);
    if (!present(to) || as_tensor_numel(&to) == 0 || residency_.is_constant(to.data)) continue;
    const std::int64_t size = as_dtype_size(to.dtype);
    const std::int64_t row = as_tensor_numel(&to) / to.shape[0];
    if (to.stride[0] == from.stride[0]) {
      auto ok = device_.download(to.data, from.data, tensor_bytes(to));
      if (!ok) return ok;
      continue;
    }
    for (std::int64_t t = 0; t < to.shape[0]; ++t) {
      auto ok = device_.download(static_cast<char*>(to.data) + t * to.stride[0] * size,
                                 static_cast<const char*>(from.data) + t * from.stride[0] * size,
                                 to_size(row * size));
      if (!ok) return ok;
    }
  }
  return device_.synchronize();
}

Result<std::vector<DecodePlan::Timed>> DecodePlan::times() {
  std::vector<Timed> times;
  for (const std::size_t i : timed_) {
    auto time = device_.between(2 * i, 2 * i + 1);
    if (!time) return time.error();
    times.push_back({steps_[i].op, steps_[i].layer, *time});
  }
  timed_.clear();
  return times;
}

}  // namespace attnscope
