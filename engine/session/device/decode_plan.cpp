#include "engine/session/device/decode_plan.h"

#include <algorithm>
#include <cstring>

#include "engine/backend/call_op.h"
#include "engine/family/family.h"
#include "engine/family/value_places.h"
#include "engine/model/numbers.h"
#include "engine/session/step/layer_ops.h"
#include "engine/session/step/output_poison.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

template <class T>
as_tensor whole(std::vector<T>& v) {
  return make_tensor(v.data(), {static_cast<std::int64_t>(v.size())});
}

// rows x from_columns into rows x to_columns, the rest of each row filled.
template <class T>
void pad_rows(const std::vector<T>& from, std::int64_t rows, std::int64_t from_columns, T* to,
              std::int64_t to_columns, T rest) {
  for (std::int64_t r = 0; r < rows; ++r, to += to_columns) {
    T* end = std::copy_n(from.begin() + r * from_columns, std::min(from_columns, to_columns), to);
    std::fill(end, to + to_columns, rest);
  }
}

// And back.
template <class T>
void unpad_rows(const T* from, std::int64_t rows, std::int64_t from_columns, std::vector<T>& to,
                std::int64_t to_columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(from + r * from_columns, to_columns, to.begin() + r * to_columns);
  }
}

struct Extent {
  std::int64_t lists, tokens, columns;
};

// Of each list the rows of its tokens, the rest of a row and of a list filled.
template <class T>
void pad_lists(const std::vector<T>& from, const Extent& has, T* to, const Extent& wants, T rest) {
  const T* row = from.data();
  for (std::int64_t l = 0; l < has.lists; ++l, to += wants.tokens * wants.columns) {
    T* end = to;
    if (has.columns == wants.columns) {
      end = std::copy_n(row, has.tokens * has.columns, to);
      row += has.tokens * has.columns;
    } else {
      for (std::int64_t t = 0; t < has.tokens; ++t, row += has.columns) {
        T* filled = std::copy_n(row, std::min(has.columns, wants.columns), end);
        end += wants.columns;
        std::fill(filled, end, rest);
      }
    }
    std::fill(end, to + wants.tokens * wants.columns, rest);
  }
}

// And back.
template <class T>
void unpad_lists(const T* from, const Extent& has, std::vector<T>& to, const Extent& wants) {
  auto row = to.begin();
  for (std::int64_t l = 0; l < wants.lists; ++l, from += has.tokens * has.columns) {
    if (has.columns == wants.columns) {
      row = std::copy_n(from, wants.tokens * wants.columns, row);
      continue;
    }
    for (std::int64_t t = 0; t < wants.tokens; ++t) {
      row = std::copy_n(from + t * has.columns, wants.columns, row);
    }
  }
}

}  // namespace

DecodePlan::DecodePlan(const PlanShape& shape, const SessionParts& parts, const Slab& slab,
                       Residency& residency, const PlanWays& ways)
    : shape_(shape),
      parts_(parts),
      slab_(slab),
      residency_(residency),
      device_(residency.device()),
      ways_(ways) {
  const CacheLayout& layout = parts.layout;
  const auto groups = static_cast<std::int64_t>(layout.groups.size());
  const std::int64_t tokens = shape.tokens;
  StepMetadata& m = metadata_;
  for (const CacheGroup& group : layout.groups) {
    m.groups.insert(m.groups.end(), {group.block_tokens, group.reach()});
  }
  m.live.assign(to_size(shape.live), -1);
  m.columns = shape.columns;
  m.tables.assign(to_size(groups * shape.live * shape.columns), 0);
  m.positions.assign(to_size(tokens), 0);
  m.token_to_req.assign(to_size(tokens), -1);
  m.query_start_loc.assign(to_size(shape.live + 1), 0);
  m.seq_lens.assign(to_size(shape.live), 0);
  m.source_lens.assign(to_size(shape.live), 0);
  m.slots.assign(to_size(groups * tokens), -1);
  m.own = parts.graph->family->step_tensors(parts.config, layout);
  plan_lists(m, shape.list_columns);
}

DecodePlan::~DecodePlan() {
  if (memory_ != nullptr) device_.release(memory_);
  if (packed_ != nullptr) device_.release(packed_);
  if (packing_ != nullptr) device_.release_host(packing_);
}

Result<std::unique_ptr<DecodePlan>> DecodePlan::make(const PlanShape& shape,
                                                     const SessionParts& parts, const Slab& slab,
                                                     const LaneSelector& lanes,
                                                     Residency& residency, const PlanWays& ways) {
  std::unique_ptr<DecodePlan> plan(new DecodePlan(shape, parts, slab, residency, ways));
  if (auto ok = plan->build(lanes); !ok) return ok.error();
  return plan;
}

Result<void> DecodePlan::pack_pieces() {
  std::size_t total = 0;
  const auto add = [&](const void* host, std::size_t bytes) {
    if (bytes == 0) return;
    pieces_.push_back({host, bytes, total});
    total += (bytes + 255) / 256 * 256;
  };
  const auto piece = [&](const auto& v) { add(v.data(), v.size() * sizeof(v[0])); };
  const StepMetadata& m = metadata_;
  piece(m.groups);
  piece(m.positions);
  piece(m.token_to_req);
  piece(m.query_start_loc);
  piece(m.seq_lens);
  piece(m.source_lens);
  const as_tensor hidden = frame_.get(parts_.graph->hidden);
  hidden_in_ = at<bf16_t>(hidden);
  add(hidden_in_, tensor_bytes(hidden));
  piece(m.tables);
  lists_at_ = total;
  piece(m.slots);
  for (const StepTensor& tensor : m.own) tensor.values(piece);
  results_at_ = total;
  const as_tensor sampled = frame_.get(parts_.graph->sampled);
  sampled_ = at<std::int32_t>(sampled);
  add(sampled_, tensor_bytes(sampled));
  packed_bytes_ = total;
  auto there = device_.allocate(total);
  if (!there) return there.error();
  packed_ = static_cast<unsigned char*>(*there);
  auto here = device_.allocate_host(total);
  if (!here) return here.error();
  packing_ = static_cast<unsigned char*>(*here);
  // Padded tokens never get a hidden state, rows without a request no blocks.
  std::memset(packing_, 0, total);
  std::copy(m.groups.begin(), m.groups.end(), packed(m.groups.data()));
  return {};
}

template <class T>
T* DecodePlan::packed(const T* host) const {
  const auto piece =
      std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return p.host == host; });
  return reinterpret_cast<T*>(packing_ + piece->offset);
}

Result<void> DecodePlan::build(const LaneSelector& lanes) {
  const ModelGraph& graph = *parts_.graph;
  std::vector<Launch> order = launch_order(graph, ways_.lists);
  if (ways_.serial) order = on_one_stream(std::move(order));
  // Twice: the first round lets every tensor of the frame grow to its largest layer.
  for (int round = 0; round < 2; ++round) {
    steps_.clear();
    frame_.make(graph.hidden, AS_BF16, {shape_.tokens, parts_.config.hidden});
    if (round == 1) {
      if (auto ok = pack_pieces(); !ok) return ok;
    }
    for (const Launch& launch : order) {
      // Every token of a decode step is sampled from: what comes after the layers reads the hidden
      // states where they are.
      frame_.share(graph.last, graph.hidden);
      add(launch, lanes);
      if (launch.layer >= 0 && launch.op == graph.layer(launch.layer).ops().back()) {
        frame_.swap(graph.hidden, graph.hidden_out);
      }
    }
    // An odd number of layers leaves the two hidden tensors swapped.
    if (round == 0 && parts_.config.num_layers() % 2 == 1) {
      frame_.swap(graph.hidden, graph.hidden_out);
    }
  }
  if (auto ok = place(); !ok) return ok;
  for (Step& step : steps_) {
    if (auto ok = translate(step.params); !ok) return ok;
  }
  return {};
}

bool DecodePlan::is_packed(const as_tensor& tensor) const {
  return std::ranges::any_of(pieces_, [&](const Piece& piece) { return piece.has(tensor); });
}

Result<void> DecodePlan::place() {
  // By host address: the most bytes that a layer has there.
  std::map<const void*, std::size_t> sizes;
  for (const Step& step : steps_) {
    const as_op_info& info = step.params.info();
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      if (info.taps[i].kind != AS_TAP_TENSOR) continue;
      const as_tensor& t = step.params.tensor(info.taps[i].offset);
      if (!present(t) || residency_.is_constant(t.data) || is_packed(t)) continue;
      std::size_t& bytes = sizes[t.data];
      bytes = std::max(bytes, tensor_bytes(t));
    }
  }
  const ModelGraph& graph = *parts_.graph;
  std::vector<std::size_t> bytes(graph.values.size(), 0);
  std::map<const void*, ValueId> values;
  for (std::size_t v = 0; v < bytes.size(); ++v) {
    const auto value = static_cast<ValueId>(v);
    const auto size = sizes.find(frame_.get(value).data);
    // The rows to sample from are the hidden states.
    if (size == sizes.end() || value == graph.last) continue;
    values.emplace(size->first, value);
    bytes[v] = size->second;
  }
  const ValuePlaces places = place_values(graph, bytes);
  auto made = device_.allocate(std::max<std::size_t>(1, places.bytes));
  if (!made) return made.error();
  memory_ = static_cast<unsigned char*>(*made);
  for (const auto& [host, value] : values) places_[host] = memory_ + places.offset[to_size(value)];
  return {};
}

void DecodePlan::add(const Launch& launch, const LaneSelector& lanes) {
  const ModelGraph& graph = *parts_.graph;
  Step step;
  step.launch = launch;
  step.function = lanes.function(launch.op);
  if (graph.before.find(launch.op) != nullptr) {
    step.params = list_op_params(launch.op, graph, metadata_, parts_.config, parts_.layout);
  } else {
    const PagedSource source(parts_.layout, slab_, metadata_);
    OpContext context;
    context.graph = &graph;
    context.config = &parts_.config;
    context.weights = parts_.weights.get();
    context.ropes = &parts_.ropes;
    context.positions = whole(metadata_.positions);
    context.token_to_req = whole(metadata_.token_to_req);
    context.seq_lens = whole(metadata_.seq_lens);
    context.query_start_loc = whole(metadata_.query_start_loc);
    context.source_lens = whole(metadata_.source_lens);
    context.logits_width = shape_.logits;
    step.params = layer_op_params(launch.op, launch.layer, context, frame_, source);
  }
  steps_.push_back(std::move(step));
}

Result<void> DecodePlan::translate(as_tensor& tensor) {
  if (!present(tensor)) return {};
  for (const Piece& piece : pieces_) {
    if (!piece.has(tensor)) continue;
    tensor.data = packed_ + piece.offset +
                  (static_cast<const char*>(tensor.data) - static_cast<const char*>(piece.host));
    tensor.device = 1;
    return {};
  }
  if (residency_.is_constant(tensor.data)) {
    auto there = residency_.constant(tensor);
    if (!there) return there.error();
    tensor = *there;
    return {};
  }
  const auto place = places_.find(tensor.data);
  if (place == places_.end()) {
    return Error{
        AS_INTERNAL, "an op of a decode step has a tensor that is no value of the graph", {}};
  }
  tensor.data = place->second;
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

void DecodePlan::pack_inputs(const StepMetadata& step, const as_tensor& hidden) {
  const StepMetadata& m = metadata_;
  const auto list = [&](const auto& from, const auto& to, auto rest) {
    pad_rows(from, 1, static_cast<std::int64_t>(from.size()), packed(to.data()),
             static_cast<std::int64_t>(to.size()), rest);
  };
  list(step.positions, m.positions, std::int64_t{0});
  list(step.token_to_req, m.token_to_req, std::int32_t{-1});
  list(step.query_start_loc, m.query_start_loc, std::int32_t{0});
  list(step.seq_lens, m.seq_lens, std::int32_t{0});
  list(step.source_lens, m.source_lens, std::int32_t{0});
  std::memcpy(packed(hidden_in_), hidden.data, tensor_bytes(hidden));
  // Rows and columns beyond the step's are zero: only what a larger step has left there is cleared.
  const std::int64_t live = step.num_live();
  const std::int64_t columns = std::min(step.columns, shape_.columns);
  columns_packed_ = std::max(columns_packed_, columns);
  rows_packed_ = std::max(rows_packed_, live);
  std::int32_t* to = packed(m.tables.data());
  for (std::size_t g = 0; g < parts_.layout.groups.size(); ++g) {
    const std::int32_t* from =
        step.tables.data() + static_cast<std::int64_t>(g) * live * step.columns;
    std::int32_t* row = to + static_cast<std::int64_t>(g) * shape_.live * shape_.columns;
    for (std::int64_t r = 0; r < live; ++r, from += step.columns, row += shape_.columns) {
      std::memcpy(row, from, to_size(columns) * sizeof(*row));
      std::fill(row + columns, row + columns_packed_, 0);
    }
    for (std::int64_t r = live; r < rows_packed_; ++r, row += shape_.columns) {
      std::fill(row, row + columns_packed_, 0);
    }
  }
  columns_packed_ = columns;
  rows_packed_ = live;
}

void DecodePlan::pack_lists(const StepMetadata& step) {
  const auto groups = static_cast<std::int64_t>(parts_.layout.groups.size());
  const std::int64_t tokens = step.num_tokens_in_step(), most = shape_.tokens;
  const StepMetadata& m = metadata_;
  pad_rows(step.slots, groups, tokens, packed(m.slots.data()), most, std::int64_t{-1});
  for (std::size_t i = 0; i < m.own.size(); ++i) {
    const StepTensor &from = step.own[i], &to = m.own[i];
    if (to.empty()) continue;
    const Extent has{to.lists, to.rows(tokens), from.width(step.list_columns)};
    const Extent wants{to.lists, to.rows(most), to.width(m.list_columns)};
    if (to.of_64_bits()) {
      pad_lists(from.slots, has, packed(to.slots.data()), wants, std::int64_t{to.nothing()});
    } else {
      pad_lists(from.numbers, has, packed(to.numbers.data()), wants, std::int32_t{to.nothing()});
    }
  }
}

void DecodePlan::unpack_lists(StepMetadata& step) const {
  const auto groups = static_cast<std::int64_t>(parts_.layout.groups.size());
  const std::int64_t tokens = step.num_tokens_in_step(), most = shape_.tokens;
  const StepMetadata& m = metadata_;
  unpad_rows(packed(m.slots.data()), groups, most, step.slots, tokens);
  for (std::size_t i = 0; i < m.own.size(); ++i) {
    const StepTensor& from = m.own[i];
    StepTensor& to = step.own[i];
    if (from.empty()) continue;
    const Extent has{from.lists, from.rows(most), from.width(m.list_columns)};
    const Extent wants{from.lists, from.rows(tokens), to.width(step.list_columns)};
    if (to.of_64_bits()) {
      unpad_lists(packed(from.slots.data()), has, to.slots, wants);
    } else {
      unpad_lists(packed(from.numbers.data()), has, to.numbers, wants);
    }
  }
}

void DecodePlan::wrote_blocks(const StepMetadata& step) {
  auto slot = step.slots.begin();
  for (const CacheGroup& group : parts_.layout.groups) {
    for (std::int64_t t = 0; t < step.num_tokens_in_step(); ++t, ++slot) {
      if (*slot >= 0) residency_.device_wrote(*slot / group.block_tokens);
    }
  }
}

Result<void> DecodePlan::begin(const StepMetadata& step, const as_tensor& hidden, bool whole) {
  timed_.clear();
  ++begun_;
  pack_inputs(step, hidden);
  if (!ways_.lists || !whole) {
    pack_lists(step);
    wrote_blocks(step);
  }
  if (auto ok = residency_.upload_blocks(); !ok) return ok;
  return whole ? Result<void>{} : device_.upload(packed_, packing_, results_at_);
}

Result<void> DecodePlan::call(const Step& step, int branch, bool timed) {
  as_call context = host_call(nullptr);
  context.stream = device_.stream(branch);
  const auto event = 2 * static_cast<std::size_t>(&step - steps_.data());
  if (timed) {
    if (auto ok = device_.mark(branch, event); !ok) return ok;
  }
  if (auto ok = call_op(step.function, step.params.data(), context); !ok) return ok;
  return timed ? device_.mark(branch, event + 1) : Result<void>{};
}

const DecodePlan::Step& DecodePlan::step_of(int layer, as_op_id op) const {
  return *std::find_if(steps_.begin(), steps_.end(),
                       [&](const Step& s) { return s.launch.layer == layer && s.launch.op == op; });
}

Result<OpLaunches> DecodePlan::launches(int layer, as_op_id op) {
  const Step& step = step_of(layer, op);
  return device_.launches([&] { return call(step, 0, false); });
}

Result<void> DecodePlan::run(int layer, as_op_id op, bool poison) {
  const Step* const step = &step_of(layer, op);
  const as_op_info& info = step->params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (!poison || tap.kind != AS_TAP_TENSOR || tap.direction != AS_TAP_OUT) continue;
    const as_tensor& t = step->params.tensor(tap.offset);
    if (!present(t)) continue;
    const std::uint8_t byte = poison_byte(tap, t.dtype, (begun_ + layer) % 2 != 0);
    if (auto ok = device_.fill(t.data, byte, tensor_bytes(t)); !ok) return ok;
  }
  timed_.push_back(static_cast<std::size_t>(step - steps_.data()));
  return call(*step, 0, true);
}

Result<void> DecodePlan::put_all(bool timed) {
  const std::size_t computed = ways_.lists ? lists_at_ : results_at_;
  if (auto ok = device_.upload(packed_, packing_, computed); !ok) return ok;
  for (const Step& step : steps_) {
    for (const int started : step.launch.starts) {
      if (auto ok = device_.order(started, 0); !ok) return ok;
    }
    for (const int on : step.launch.after) {
      if (auto ok = device_.order(step.launch.stream, on); !ok) return ok;
    }
    if (auto ok = call(step, step.launch.stream, timed); !ok) return ok;
  }
  return device_.download(packing_ + computed, packed_ + computed, packed_bytes_ - computed);
}

Result<void> DecodePlan::launch(bool timed) {
  for (std::size_t i = 0; timed && i < steps_.size(); ++i) timed_.push_back(i);
  // The first run lets workspaces grow: nothing may be allocated while a graph is recorded.
  if (!ran_) {
    ran_ = true;
    return put_all(timed);
  }
  std::optional<std::size_t>& graph = timed ? timed_graph_ : graph_;
  if (!graph) {
    auto recorded = device_.record([&] { return put_all(timed); });
    if (!recorded) return recorded.error();
    graph = *recorded;
  }
  return device_.replay(*graph);
}

Result<void> DecodePlan::finish(StepMetadata& step, const as_tensor& sampled) {
  if (auto ok = device_.synchronize(); !ok) return ok;
  std::memcpy(sampled.data, packed(sampled_), tensor_bytes(sampled));
  if (!ways_.lists) return {};
  unpack_lists(step);
  wrote_blocks(step);
  return {};
}

Result<void> DecodePlan::fetch(int layer, const OpParams& host, bool inputs) {
  const Step* const step = &step_of(layer, host.op());
  const as_op_info& info = host.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind != AS_TAP_TENSOR || (tap.direction == AS_TAP_IN && !inputs)) continue;
    const as_tensor& to = host.tensor(tap.offset);
    const as_tensor& from = step->params.tensor(tap.offset);
    if (!present(to) || as_tensor_numel(&to) == 0 || residency_.is_constant(to.data)) continue;
    const std::int64_t size = as_dtype_size(to.dtype);
    // In pieces that lie whole on both sides.
    const bool whole = to.stride[0] == from.stride[0];
    const std::int64_t row = as_tensor_numel(&to) / to.shape[0];
    for (std::int64_t t = 0; t < (whole ? 1 : to.shape[0]); ++t) {
      char* const here = static_cast<char*>(to.data) + t * to.stride[0] * size;
      const char* const there = static_cast<const char*>(from.data) + t * from.stride[0] * size;
      const std::size_t bytes = whole ? tensor_bytes(to) : to_size(row * size);
      if (tap.direction == AS_TAP_IN) {
        residency_.inputs().add(here, there, bytes);
      } else {
        residency_.inputs().bring(here, there, bytes);
      }
    }
  }
  return residency_.inputs().run();
}

Result<std::vector<DecodePlan::Timed>> DecodePlan::times() {
  std::vector<Timed> times;
  for (const std::size_t i : timed_) {
    const Launch& launch = steps_[i].launch;
    auto time = device_.between(2 * i, 2 * i + 1);
    auto start =
        i == timed_.front() ? Result<double>(0.0) : device_.between(2 * timed_.front(), 2 * i);
    if (!time || !start) return time ? start.error() : time.error();
    times.push_back({launch.op, launch.layer, *time, *start, launch.stream});
  }
  timed_.clear();
  return times;
}

}  // namespace attnscope
