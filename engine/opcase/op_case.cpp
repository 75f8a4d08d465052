#include "engine/opcase/op_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/model/memory.h"
#include "engine/model/numbers.h"
#include "engine/opcase/nan_memory.h"
#include "engine/opcase/rows_read.h"
#include "kernels/layout/records.h"
#include "kernels/params/head.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr std::int64_t kLargestCall = std::int64_t{1} << 40;  // bytes

// Calls visit(offset of a run in elements, index of the run) for every run of the last axis.
template <class Visit>
void each_run(const as_tensor& t, const Visit& visit) {
  const std::int64_t columns = t.shape[t.rank - 1];
  const std::int64_t runs = columns == 0 ? 0 : as_tensor_numel(&t) / columns;
  for (std::int64_t run = 0; run < runs; ++run) {
    std::int64_t offset = 0, rest = run;
    for (std::int32_t axis = t.rank - 2; axis >= 0; --axis) {
      offset += rest % t.shape[axis] * t.stride[axis];
      rest /= t.shape[axis];
    }
    visit(offset, run);
  }
}

// Between a tensor of any strides and dense bytes.
void copy_elements(const as_tensor& t, std::uint8_t* dense, bool to_dense) {
  const std::int64_t size = as_dtype_size(t.dtype), columns = t.shape[t.rank - 1];
  auto* base = static_cast<std::uint8_t*>(t.data);
  each_run(t, [&](std::int64_t offset, std::int64_t run) {
    for (std::int64_t c = 0; c < columns; ++c) {
      std::uint8_t* element = base + (offset + c * t.stride[t.rank - 1]) * size;
      std::uint8_t* other = dense + (run * columns + c) * size;
      std::memcpy(to_dense ? other : element, to_dense ? element : other, to_size(size));
    }
  });
}

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(1, shape[i]);
  }
  return strides;
}

}  // namespace

StoredTensor keep_tensor(const as_tensor& t) {
  StoredTensor out;
  out.dtype = t.dtype;
  out.shape.assign(t.shape, t.shape + t.rank);
  out.stride.assign(t.stride, t.stride + t.rank);
  out.bytes.resize(to_size(as_tensor_numel(&t) * as_dtype_size(t.dtype)));
  if (out.stride == dense_strides(out.shape)) {
    if (!out.bytes.empty()) std::memcpy(out.bytes.data(), t.data, out.bytes.size());
    out.stride.clear();
  } else {
    copy_elements(t, out.bytes.data(), true);
  }
  return out;
}

namespace {

StoredCache keep_cache(const as_cache& cache, std::vector<std::int64_t> slots) {
  StoredCache out;
  out.record = cache.record;
  out.rows_per_block = cache.rows_per_block;
  out.width = cache.width;
  out.blocks = cache.data.shape[0];
  out.heads = cache.data.reserved;
  // Pages a little apart, so that page size and stride are two numbers as in a shared slab.
  constexpr std::int64_t kApart = 576;
  out.page_stride = out.layout().page + kApart;
  out.slots = std::move(slots);
  out.rows.resize(out.slots.size() * to_size(out.row_bytes()));
  std::uint8_t* to = out.rows.data();
  for (const std::int64_t slot : out.slots) {
    as_row_get(&cache, slot, to);
    to += out.row_bytes();
  }
  return out;
}

StoredRope keep_rope(const as_rope& rope, std::vector<std::int64_t> positions) {
  StoredRope out{rope.base,
                 rope.factor,
                 rope.original_max_pos,
                 rope.beta_fast,
                 rope.beta_slow,
                 1,
                 rope.table.reserved,
                 {},
                 {},
                 rope.table.rank == 2 ? rope.table.shape[1] : 0};
  if (!positions.empty()) out.table_rows = positions.back() + 1;
  for (const std::int64_t p : positions) {
    const float* row = at<float>(rope.table, p);
    out.rows.insert(out.rows.end(), row, row + out.dims);
  }
  out.positions = std::move(positions);
  return out;
}

Error wrong_size(const std::string& what) {
  return bad_input(what + ": larger than a call can be", "the case is damaged: save it again");
}

class HeapMemory : public CaseMemory {
 public:
  Result<void*> allocate(std::int64_t bytes, const char* name, bool) override {
    if (bytes > (std::int64_t{64} << 20)) {
      if (auto ok = check_memory(bytes); !ok) {
        constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
        return Error{AS_NO_ENVIRONMENT,
                     fmt::format("{} takes {:.1f} GiB of address space, which is more than this "
                                 "machine has free memory",
                                 name, static_cast<double>(bytes) / kGiB),
                     "run it on a larger machine"};
      }
    }
    memory_.push_back(nan_memory(bytes));
    if (memory_.back() == nullptr) {
      return Error{AS_NO_ENVIRONMENT, fmt::format("{}: out of memory", name), {}};
    }
    return memory_.back().get();
  }

 private:
  std::vector<NanMemory> memory_;
};

// a * b + c, or -1 beyond kLargestCall.
std::int64_t bounded(std::int64_t a, std::int64_t b, std::int64_t c = 0) {
  if (a < 0 || b < 0 || c < 0 || (b > 0 && a > kLargestCall / b)) return -1;
  const std::int64_t product = a * b;
  return product > kLargestCall - c ? -1 : product + c;
}

}  // namespace

as_row_layout StoredCache::layout() const {
  return as_row_layout_of(record, width, std::max(heads, 1), rows_per_block);
}

Result<OpCase> keep_case(const CaseOp& op, const void* params, CaseOrigin origin) {
  if (op.id == AS_OP_COPY_BLOCKS) {
    return bad_input("copy_blocks changes blocks in place: a case cannot hold both states",
                     "use its property tests");
  }
  OpCase kept;
  kept.op = op;
  kept.origin = std::move(origin);
  const auto* bytes = static_cast<const char*>(params);
  for (const as_param_info& field : op.fields) {
    switch (field.kind) {
      case AS_PARAM_INTEGER: {
        std::int32_t value;
        std::memcpy(&value, bytes + field.offset, sizeof(value));
        kept.integers[field.name] = value;
        break;
      }
      case AS_PARAM_REAL: {
        double value;
        std::memcpy(&value, bytes + field.offset, sizeof(value));
        kept.reals[field.name] = value;
        break;
      }
      case AS_PARAM_ROPE:
        kept.ropes[field.name] =
            keep_rope(rope_at(params, field.offset), rope_rows_read(op, params));
        break;
    }
  }
  for (const as_tap_info& tap : op.taps) {
    if (tap.kind == AS_TAP_TENSOR) {
      const as_tensor& t = tensor_at(params, tap.offset);
      if (!present(t)) continue;
      if (t.device != 0) {
        return bad_input(fmt::format("{}: {} lies on a device", op.name, tap.name),
                         "record with references, which bring tensors to the host");
      }
      kept.tensors[tap.name] = keep_tensor(t);
      continue;
    }
    const as_cache& cache = cache_at(params, tap.offset);
    if (cache.record == AS_RECORD_NONE || !present(cache.data)) continue;
    if (cache.addressing != AS_PAGED) {
      return bad_input(fmt::format("{}: cache {} has no pages", op.name, tap.name),
                       "cases are made of calls of kernel lanes");
    }
    kept.caches[tap.name] = keep_cache(cache, slots_to_keep(op, params, tap.offset));
  }
  return kept;
}

Result<void*> CaseCall::allocate(std::int64_t bytes, const char* name, bool written) {
  if (bytes < 0 || bytes > kLargestCall) return wrong_size(fmt::format("{}: {}", op_.name, name));
  return memory_->allocate(bytes, name, written);
}

Result<void> CaseCall::put_tensor(const as_tap_info& tap, const StoredTensor& from, bool filled) {
  as_tensor& t = tensor_at(params(), tap.offset);
  if (from.shape.empty() || from.shape.size() > AS_MAX_RANK) {
    return bad_input(fmt::format("{}: {} has {} dimensions, expected 1 to {}", op_.name, tap.name,
                                 from.shape.size(), AS_MAX_RANK));
  }
  const std::vector<std::int64_t> strides =
      from.stride.empty() ? dense_strides(from.shape) : from.stride;
  t.dtype = from.dtype;
  t.rank = static_cast<std::int32_t>(from.shape.size());
  std::int64_t last = 0;  // of the elements
  bool empty = false;
  for (std::size_t i = 0; i < from.shape.size(); ++i) {
    t.shape[i] = from.shape[i];
    t.stride[i] = strides[i];
    empty = empty || from.shape[i] == 0;
    last = bounded(std::max<std::int64_t>(0, from.shape[i] - 1), strides[i], last);
    if (last < 0) return wrong_size(fmt::format("{}: {}", op_.name, tap.name));
  }
  const std::int64_t size = as_dtype_size(from.dtype);
  auto memory = allocate(empty ? 0 : bounded(last + 1, size), tap.name, !filled);
  if (!memory) return memory.error();
  t.data = *memory;
  if (filled && !empty) copy_elements(t, const_cast<std::uint8_t*>(from.bytes.data()), false);
  return {};
}

Result<void> CaseCall::put_cache(const as_tap_info& tap, const StoredCache& from, bool filled) {
  as_cache& cache = cache_at(params(), tap.offset);
  cache.record = from.record;
  cache.rows_per_block = from.rows_per_block;
  cache.width = from.width;
  cache.addressing = AS_PAGED;
  const std::int64_t page = from.layout().page;
  const std::int64_t bytes = bounded(from.blocks, from.page_stride);
  if (bytes < 0 || from.page_stride < page) {
    return wrong_size(fmt::format("{}: {}", op_.name, tap.name));
  }
  auto memory = allocate(bytes, tap.name, !filled);
  if (!memory) return memory.error();
  cache.data = make_tensor(*memory, AS_U8, {from.blocks, page});
  cache.data.stride[0] = from.page_stride;
  cache.data.reserved = from.heads;
  if (filled) put_stored_rows(from, cache);
  return {};
}

Result<void> CaseCall::put_rope(const as_param_info& field, const StoredRope& from) {
  as_rope& rope = rope_at(params(), field.offset);
  rope.base = from.base;
  rope.factor = from.factor;
  rope.original_max_pos = from.original_max_pos;
  rope.beta_fast = from.beta_fast;
  rope.beta_slow = from.beta_slow;
  rope.table.reserved = from.frequencies;
  if (from.dims == 0) return {};
  auto memory = allocate(bounded(from.table_rows, from.dims * 4), field.name, false);
  if (!memory) return memory.error();
  rope.table = make_tensor(static_cast<float*>(*memory), {from.table_rows, from.dims});
  rope.table.reserved = from.frequencies;
  for (std::size_t i = 0; i < from.positions.size(); ++i) {
    std::memcpy(at<float>(rope.table, from.positions[i]),
                from.rows.data() + static_cast<std::int64_t>(i) * from.dims,
                static_cast<std::size_t>(from.dims) * sizeof(float));
  }
  return {};
}

Result<CaseCall> CaseCall::make(const OpCase& kept) {
  auto heap = std::make_shared<HeapMemory>();
  auto call = make(kept, *heap);
  if (call) call->own_ = std::move(heap);
  return call;
}

Result<CaseCall> CaseCall::make(const OpCase& kept, CaseMemory& memory) {
  CaseCall call;
  call.op_ = kept.op;
  call.memory_ = &memory;
  call.params_.assign((kept.op.params_size + 7) / 8, 0);
  const as_params_head head = {static_cast<std::uint32_t>(kept.op.params_size), AS_PARAMS_VERSION};
  std::memcpy(call.params(), &head, sizeof(head));
  auto* bytes = static_cast<char*>(call.params());
  for (const as_param_info& field : kept.op.fields) {
    if (const auto it = kept.integers.find(field.name); it != kept.integers.end()) {
      const auto value = static_cast<std::int32_t>(it->second);
      std::memcpy(bytes + field.offset, &value, sizeof(value));
    } else if (const auto real = kept.reals.find(field.name); real != kept.reals.end()) {
      std::memcpy(bytes + field.offset, &real->second, sizeof(real->second));
    } else if (const auto rope = kept.ropes.find(field.name); rope != kept.ropes.end()) {
      if (auto ok = call.put_rope(field, rope->second); !ok) return ok.error();
    }
  }
  for (const as_tap_info& tap : kept.op.taps) {
    const bool filled = reads_tap(tap, call.params());
    if (const auto it = kept.tensors.find(tap.name); it != kept.tensors.end()) {
      if (auto ok = call.put_tensor(tap, it->second, filled); !ok) return ok.error();
    } else if (const auto cache = kept.caches.find(tap.name); cache != kept.caches.end()) {
      if (auto ok = call.put_cache(tap, cache->second, filled); !ok) return ok.error();
    }
  }
  return call;
}

void copy_outputs(const CaseCall& call, void* params) {
  std::vector<std::uint8_t> dense;
  for (const as_tap_info& tap : call.op().taps) {
    if (reads_tap(tap, params)) continue;
    if (tap.kind == AS_TAP_CACHE) {
      const as_cache &from = call.cache(tap), &to = cache_at(params, tap.offset);
      for (const std::int64_t slot : slots_touched(call.op(), params, tap.offset)) {
        as_row_copy(&from, slot, &to, slot);
      }
      continue;
    }
    const as_tensor &from = call.tensor(tap), &to = tensor_at(params, tap.offset);
    if (!present(to) || as_tensor_numel(&to) == 0) continue;
    dense.resize(to_size(as_tensor_numel(&to) * as_dtype_size(to.dtype)));
    copy_elements(from, dense.data(), true);
    copy_elements(to, dense.data(), false);
  }
}

as_tensor stored_view(const StoredTensor& stored) {
  as_tensor t{};
  t.data = const_cast<std::uint8_t*>(stored.bytes.data());
  t.dtype = stored.dtype;
  t.rank = static_cast<std::int32_t>(stored.shape.size());
  const std::vector<std::int64_t> strides = dense_strides(stored.shape);
  std::copy(stored.shape.begin(), stored.shape.end(), t.shape);
  std::copy(strides.begin(), strides.end(), t.stride);
  return t;
}

std::vector<std::string> row_format_names() {
  std::vector<std::string> names;
  for (std::int32_t i = 0; as_row_format_at(i) != nullptr; ++i) {
    names.emplace_back(as_row_format_at(i)->name);
  }
  return names;
}

void put_stored_rows(const StoredCache& stored, const as_cache& cache) {
  const std::uint8_t* row = stored.rows.data();
  for (const std::int64_t slot : stored.slots) {
    as_row_put(&cache, slot, row);
    row += stored.row_bytes();
  }
}

as_tensor stored_rows(const StoredCache& stored) {
  const auto rows = static_cast<std::int64_t>(stored.slots.size());
  void* data = const_cast<std::uint8_t*>(stored.rows.data());
  if (as_row_is_values(stored.record) != 0) return make_tensor(data, AS_F32, {rows, stored.width});
  return make_tensor(data, AS_U8, {rows, stored.row_bytes()});
}

}  // namespace attnscope
