#include "engine/session/tap_copies.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <string_view>

#include "engine/model/numbers.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Elements that one thread measures before others have woken up.
constexpr std::int64_t kAlone = 1 << 14;

// Position of a letter among comma-separated axes, -1 when it is not there.
int axis_of(std::string_view axes, std::string_view letter) {
  for (int i = 0; !axes.empty(); ++i) {
    const std::size_t end = std::min(axes.find(','), axes.size());
    if (axes.substr(0, end) == letter) return i;
    axes.remove_prefix(std::min(axes.size(), end + 1));
  }
  return -1;
}

// Weights are named by the model's dimensions alone; all else has tokens, requests, groups, free
// blocks, columns or sampled rows.
bool is_weight_tap(const as_tap_info& tap) {
  if (tap.direction != AS_TAP_IN) return false;
  for (const char* letter : {"T", "R", "G", "S", "F", "C", "N", "L", "M", "P", "X", "Y"}) {
    if (axis_of(tap.axes, letter) >= 0) return false;
  }
  return true;
}

// Rows of one axis, or all of them. A dense tensor in, a dense tensor out, in runs of bytes.
struct Runs {
  Runs(const as_tensor& tensor, std::int64_t axis, const std::vector<std::int32_t>& rows)
      : from(static_cast<const std::uint8_t*>(tensor.data)), kept(rows) {
    bytes = as_dtype_size(tensor.dtype);
    for (std::int32_t a = 0; a < tensor.rank; ++a) (a < axis ? outer : bytes) *= tensor.shape[a];
    if (axis < 0) return;
    length = tensor.shape[axis];
    bytes /= length;
  }
  std::size_t total() const { return to_size(outer * count() * bytes); }
  std::int64_t count() const { return length < 0 ? 1 : static_cast<std::int64_t>(kept.size()); }
  // Whether all runs are one.
  bool whole() const {
    const std::int64_t n = count();
    return length < 0 || n == length ||
           (outer == 1 && n > 0 && kept.back() - kept.front() + 1 == n);
  }
  const std::uint8_t* run(std::int64_t o, std::int64_t k) const {
    return from + (length < 0 ? 0 : (o * length + kept[to_size(k)]) * bytes);
  }
  template <class Visit>
  bool each(const Visit& visit) const {
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t k = 0; k < count(); ++k) {
        if (!visit(run(o, k), to_size(bytes))) return false;
      }
    }
    return true;
  }

  const std::uint8_t* from;
  const std::vector<std::int32_t>& kept;
  std::int64_t outer = 1, length = -1, bytes = 1;
};

as_tensor kept_shape(const as_tensor& from, std::int64_t axis, std::size_t rows) {
  as_tensor to = from;
  if (axis >= 0) to.shape[axis] = static_cast<std::int64_t>(rows);
  std::int64_t stride = 1;
  for (std::int32_t a = to.rank - 1; a >= 0; --a) {
    to.stride[a] = stride;
    stride *= to.shape[a];
  }
  to.device = 0;
  return to;
}

as_tensor copy_rows(const as_tensor& from, std::int64_t axis, const std::vector<std::int32_t>& kept,
                    std::vector<std::uint8_t>& bytes) {
  const Runs runs(from, axis, kept);
  bytes.clear();
  bytes.reserve(runs.total());
  runs.each([&](const std::uint8_t* run, std::size_t n) {
    bytes.insert(bytes.end(), run, run + n);
    return true;
  });
  as_tensor to = kept_shape(from, axis, kept.size());
  to.data = bytes.data();
  return to;
}

// Most references have the bytes of the engine: they need none of their own then.
void share_equal_bytes(TapCopy& copy) {
  if (copy.reference.dtype != copy.value.dtype || copy.reference_bytes != copy.value_bytes) return;
  copy.reference.data = copy.value.data;
  std::vector<std::uint8_t>().swap(copy.reference_bytes);  // = {} would keep the memory
}

// Elements that the op's mask leaves out hold whatever was there before: NaN instead. Rows lie
// along the first axis of `copy`.
void blank_masked(const OpParams& params, const as_tap_info& tap,
                  const std::vector<std::int32_t>& kept, const as_tensor& copy) {
  if (tap.mask == AS_MASK_ALL) return;
  const as_tensor& mask = params.tensor(tap.mask_offset);
  const std::int64_t row_bytes = copy.stride[0] * as_dtype_size(copy.dtype);
  auto* row = static_cast<std::uint8_t*>(copy.data);
  for (const std::int32_t token : kept) {
    const std::int64_t first = bytes_with_values(tap, mask, token, copy);
    std::memset(row + first, 0xFF, to_size(row_bytes - first));
    row += row_bytes;
  }
}

// Statistics in the place of a value. A tensor that has to be put together for them lies in
// `scratch`, which stays in the processor's cache.
void measure_rows(const as_tensor& from, std::int64_t axis, const std::vector<std::int32_t>& kept,
                  const OpParams& params, const as_tap_info& tap, const TapStats* likely,
                  std::vector<std::uint8_t>& scratch, TapCopy& copy) {
  const bool masked = tap.mask != AS_MASK_ALL;
  const Runs runs(from, axis, kept);
  if (!masked && runs.whole()) {
    copy.value = kept_shape(from, axis, kept.size());
    copy.value.data = const_cast<std::uint8_t*>(runs.run(0, 0));
  } else {
    copy.value = copy_rows(from, axis, kept, scratch);
    if (masked) blank_masked(params, tap, kept, copy.value);
  }
  copy.stats = tap_stats(copy.value, likely);
  copy.value.data = nullptr;
}

// Rows that ref.sim wrote in the place of the engine: logical, row t is what token t writes.
void copy_forced_row(const as_cache& forced, std::int32_t token, std::vector<std::uint8_t>& out) {
  const std::int64_t bytes = forced.data.shape[1] * as_dtype_size(forced.data.dtype);
  const auto* row = static_cast<const std::uint8_t*>(forced.data.data) + token * bytes;
  out.insert(out.end(), row, row + bytes);
}

RowsCopy copy_cache_rows(const Session& session, const as_tap_info& tap, int layer,
                         const std::vector<std::int32_t>& kept) {
  const OpParams& params = session.last_params();
  // Rows that are moved are no token's.
  const bool of_tokens = axis_of(tap.axes, "M") != 0;
  RowsCopy copy = written_rows(params, tap, of_tokens ? kept : std::vector<std::int32_t>());
  copy.group = session.parts().layout.of_tap(layer, params.op(), tap.offset)->group;
  if (session.references() == References::kNone) return copy;
  for (const std::int32_t token : copy.tokens) {
    copy_forced_row(session.last_forced().cache(tap.offset), token, copy.reference);
  }
  return copy;
}

// Columns of the lists that a layer's attention reads for a token.
std::int64_t columns_attended(const LayerGraph& layer, const StepMetadata& step) {
  std::int64_t columns = 0;
  for (const Node& node : layer.nodes()) {
    if (as_op_role(node.op()) != AS_ROLE_ATTENTION) continue;
    for (const as_cache_access& access : RowAccess::of(node.op())) {
      for (const Binding& b : node.bindings()) {
        if (access.by != AS_BY_LIST || b.tap->offset != access.rows) continue;
        if (b.to == BoundTo::kValue) columns += layer.maker(b.value)->shape.back();
        const StepTensor* list = b.to == BoundTo::kStep ? step.tensor(b.name) : nullptr;
        if (list != nullptr) columns += list->width(step.list_columns);
      }
    }
  }
  return columns;
}

}  // namespace

void OutputsOfStep::add(const Session& session, const std::shared_ptr<const OpTrace>& op) {
  const OpParams& params = session.last_params();
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_TENSOR) continue;
    const TapCopy* copy = op->tap(tap.name);
    if (copy != nullptr) by_address_[params.tensor(tap.offset).data] = {op, copy};
  }
}

bool OutputsOfStep::share(const as_tensor& tensor, std::int64_t t_axis,
                          const std::vector<std::int32_t>& kept, TapCopy& copy) const {
  const auto it = by_address_.find(tensor.data);
  if (it == by_address_.end()) return false;
  const std::vector<std::uint8_t>& bytes = it->second.tap->value_bytes;
  const Runs runs(tensor, t_axis, kept);
  if (runs.total() != bytes.size()) return false;
  const std::uint8_t* own = bytes.data();
  const bool same = runs.each([&](const std::uint8_t* run, std::size_t n) {
    const bool equal = std::memcmp(run, own, n) == 0;
    own += n;
    return equal;
  });
  if (!same) return false;
  copy.value = kept_shape(tensor, t_axis, kept.size());
  copy.value.data = const_cast<std::uint8_t*>(bytes.data());
  copy.owner = it->second.op;
  return true;
}

void OutputsOfStep::share_copy(const as_tensor& tensor, TapCopy& copy) const {
  const auto it = by_address_.find(tensor.data);
  if (it == by_address_.end()) return;
  const std::vector<std::uint8_t>& bytes = it->second.tap->value_bytes;
  if (bytes != copy.value_bytes) return;
  copy.value.data = const_cast<std::uint8_t*>(bytes.data());
  copy.owner = it->second.op;
  std::vector<std::uint8_t>().swap(copy.value_bytes);
}

const TapStats* OutputsOfStep::stats(const as_tensor& tensor) const {
  const auto it = by_address_.find(tensor.data);
  const bool known = it != by_address_.end() && it->second.tap->stats &&
                     it->second.tap->value.dtype == tensor.dtype;
  return known ? &*it->second.tap->stats : nullptr;
}

std::int64_t bytes_with_values(const as_tap_info& tap, const as_tensor& mask, std::int64_t token,
                               const as_tensor& rows) {
  const std::int64_t size = as_dtype_size(rows.dtype);
  if (tap.mask == AS_MASK_SLOTS && *at<std::int64_t>(mask, token) < 0) return 0;
  if (tap.mask != AS_MASK_LENS) return rows.stride[0] * size;
  const std::int64_t columns = rows.shape[rows.rank - 1];
  return std::clamp<std::int64_t>(*at<std::int32_t>(mask, token), 0, columns) * size;
}

TapCopy described_copy(const as_tap_info& tap) {
  TapCopy copy;
  copy.name = tap.name;
  copy.axes = tap.axes;
  copy.rule = tap.rule;
  copy.output = tap.direction == AS_TAP_OUT;
  return copy;
}

RowsCopy written_rows(const OpParams& params, const as_tap_info& tap,
                      const std::vector<std::int32_t>& tokens) {
  const as_cache& cache = params.cache(tap.offset);
  const as_tensor& slots = params.tensor(tap.mask_offset);
  RowsCopy copy;
  copy.name = tap.name;
  copy.record = cache.record;
  copy.width = cache.width;
  copy.row_bytes = as_cache_row_bytes(&cache);
  copy.heads = static_cast<std::int32_t>(as_cache_heads(&cache));
  copy.rows_per_block = cache.rows_per_block;
  const std::int64_t total = cache.data.shape[0] * cache.rows_per_block;
  for (const std::int32_t token : tokens) {
    const std::int64_t slot = *at<std::int64_t>(slots, token);
    if (slot < 0 || slot >= total) continue;
    copy.tokens.push_back(token);
    copy.slots.push_back(slot);
    copy.bytes.resize(copy.bytes.size() + to_size(copy.row_bytes));
    as_row_get(&cache, slot, copy.bytes.data() + copy.bytes.size() - copy.row_bytes);
  }
  return copy;
}

void copy_taps(const Session& session, const std::vector<std::int32_t>& kept, const KeepsTap& keeps,
               const OutputsOfStep& outputs, std::vector<std::vector<std::uint8_t>>& scratch,
               OpTrace& op) {
  const OpParams& params = session.last_params();
  const as_op_info& info = params.info();
  const bool compared = session.references() != References::kNone;
  const bool head = info.phase == AS_PHASE_AFTER;
  op.taps.reserve(info.num_taps);
  struct Unkept {
    const as_tap_info* tap;
    const as_tensor* tensor;
    std::int64_t axis;
    std::size_t copy;
  };
  std::vector<Unkept> unkept;
  std::int64_t unkept_elements = 0;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind == AS_TAP_CACHE) {
      if (tap.direction != AS_TAP_OUT || !params.has_rows(tap)) continue;
      op.rows.push_back(copy_cache_rows(session, tap, session.cursor().layer, kept));
      continue;
    }
    const as_tensor& tensor = params.tensor(tap.offset);
    if (!present(tensor) || as_tensor_numel(&tensor) == 0) continue;
    TapCopy copy = described_copy(tap);
    bool left = false;
    copy.rule = tolerance_class(params, tap);
    std::int64_t axis = axis_of(tap.axes, "T");
    if (head && axis >= 0) {
      copy.axes[0] = 'N';
      axis = -1;
    }
    if (axis >= 0 && kept.empty()) continue;
    if (is_weight_tap(tap)) {
      copy.value = tensor;
      copy.owner = session.parts().weights;
    } else if (keeps && !keeps(op.place, tensor.dtype)) {
      left = true;
      unkept.push_back({&tap, &tensor, axis, op.taps.size()});
      unkept_elements += as_tensor_numel(&tensor);
    } else if (copy.output || tap.mask != AS_MASK_ALL) {
      copy.value = copy_rows(tensor, axis, kept, copy.value_bytes);
      blank_masked(params, tap, kept, copy.value);
      if (!copy.output) outputs.share_copy(tensor, copy);
    } else if (!outputs.share(tensor, axis, kept, copy)) {
      copy.value = copy_rows(tensor, axis, kept, copy.value_bytes);
    }
    if (copy.output && compared) {
      const as_tensor& forced = session.last_forced().tensor(tap.offset);
      if (left) {
        copy.reference = kept_shape(forced, axis, kept.size());
        copy.reference.data = nullptr;
      } else {
        copy.reference = copy_rows(forced, axis, kept, copy.reference_bytes);
        blank_masked(params, tap, kept, copy.reference);
        share_equal_bytes(copy);
      }
    }
    op.taps.push_back(std::move(copy));
  }
  if (unkept.empty()) return;
  scratch.resize(std::max(scratch.size(), unkept.size()));
  const as_threads* threads = unkept_elements < kAlone ? nullptr : session.parts().threads;
  std::atomic<bool> out_of_memory{false};  // a thread of the pool has nobody to throw to
  cpu::parallel_for(threads, to_count(unkept.size()), 1, [&](std::int64_t i, std::int64_t end) {
    try {
      for (; i < end; ++i) {
        const Unkept& u = unkept[to_size(i)];
        measure_rows(*u.tensor, u.axis, kept, params, *u.tap, outputs.stats(*u.tensor),
                     scratch[to_size(i)], op.taps[u.copy]);
      }
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  });
  if (out_of_memory) throw std::bad_alloc();
}

std::int64_t row_copy_bytes(const Session& session) {
  const ModelConfig& config = session.parts().config;
  const StepMetadata& step = session.metadata();
  // bf16 values beside float64 ones; fp32 ones beside float64.
  const bool compared = session.references() != References::kNone;
  const std::int64_t bf16 = compared ? 10 : 2, f32 = compared ? 12 : 4;
  const std::int64_t heads = config.heads;
  std::int64_t bytes = 0;
  for (int i = 0; i < config.num_layers(); ++i) {
    const LayerGraph& layer = session.parts().graph->layer(i);
    bytes += 4 * heads * config.head_dim * bf16;             // q_raw, q, o and o rotated back
    bytes += heads * columns_attended(layer, step) * 2 * 4;  // logits and weights of attention
    for (const as_op_id op : layer.ops()) {
      if (as_op_role(op) == AS_ROLE_SCORE) bytes += step.logits_width() * f32;
    }
  }
  return bytes;
}

std::vector<std::int32_t> rows_to_keep(const StepMetadata& step, std::int64_t limit) {
  const std::int64_t tokens = step.num_tokens_in_step();
  std::vector<std::int64_t> given(step.live.size(), 0);
  // Round by round, so that what short requests leave goes to the others.
  for (std::int64_t left = std::min(limit, tokens); left > 0;) {
    const std::int64_t before = left;
    std::int64_t wanting = 0;
    for (std::size_t r = 0; r < given.size(); ++r)
      wanting += given[r] < step.num_scheduled_tokens[r] ? 1 : 0;
    if (wanting == 0) break;
    const std::int64_t share = std::max<std::int64_t>(1, left / wanting);
    for (std::size_t r = 0; r < given.size(); ++r) {
      const std::int64_t more = std::min({share, left, step.num_scheduled_tokens[r] - given[r]});
      given[r] += more;
      left -= more;
    }
    if (left == before) break;
  }
  std::vector<std::int32_t> rows;
  for (std::size_t r = 0; r < given.size(); ++r) {
    const std::int32_t end = step.query_start_loc[r + 1];
    const std::int64_t at_least =
        step.num_scheduled_tokens[r] > 0 ? std::max<std::int64_t>(1, given[r]) : 0;
    for (std::int64_t i = at_least; i > 0; --i) rows.push_back(static_cast<std::int32_t>(end - i));
  }
  return rows;
}

}  // namespace attnscope
