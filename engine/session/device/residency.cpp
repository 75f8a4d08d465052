#include "engine/session/device/residency.h"

#include <algorithm>
#include <utility>

#include "engine/backend/call_op.h"
#include "engine/family/family.h"
#include "engine/model/numbers.h"
#include "engine/session/step/output_poison.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Blocks of the rows that the op writes, one as often as it has such rows.
template <class Visit>
void each_block_written(const OpParams& params, const Visit& visit) {
  for (const as_cache_access& access : RowAccess::of(params.op())) {
    if (access.direction != AS_TAP_OUT) continue;
    const std::int64_t rows = params.cache(access.cache).rows_per_block;
    RowAccess::for_each(params.data(), access, [&](const RowVisit& v) { visit(v.slot / rows); });
  }
}

}  // namespace

Residency::Residency(std::shared_ptr<ComputeDevice> device, const SessionParts& parts, Slab& slab)
    : device_(std::move(device)),
      inputs_(*device_, parts.threads),
      parts_(parts),
      slab_(slab),
      host_newer_(to_size(slab.num_blocks()), false),
      device_newer_(to_size(slab.num_blocks()), false),
      filled_(to_size(slab.num_blocks()), false),
      unwritten_(to_size(slab.num_blocks()), false),
      met_(to_size(slab.num_blocks()), 0) {
  const auto add = [this](const as_tensor& weight) {
    if (present(weight)) constant_ranges_[weight.data] = tensor_bytes(weight);
  };
  for (const std::shared_ptr<const Weights>& w : parts.ranks) {
    for (const Weight& weight : w->around) add(weight.tensor());
    for (const WeightList& layer : w->layers) {
      for (const Weight& weight : layer) {
        add(weight.tensor());
        add(weight.scale());
      }
    }
  }
  for (const as_rope& rope : parts.ropes) {
    if (present(rope.table)) constant_ranges_[rope.table.data] = tensor_bytes(rope.table);
  }
  const Family& family = *parts.graph->family;
  if (family.constants == nullptr) return;
  for (const as_tensor& tensor : family.constants(parts.config)) add(tensor);
}

Result<std::unique_ptr<Residency>> Residency::make(std::shared_ptr<ComputeDevice> device,
                                                   const SessionParts& parts, Slab& slab) {
  std::unique_ptr<Residency> r(new Residency(std::move(device), parts, slab));
  // Blocks of a model without caches have no bytes.
  const std::size_t bytes =
      to_size(std::max<std::int64_t>(slab.num_blocks() * slab.block_stride(), 1));
  auto memory = r->device_->allocate(bytes);
  if (!memory) return memory.error();
  r->device_slab_ = static_cast<unsigned char*>(*memory);
  // Like the host's. A block that nobody has met needs no upload then.
  auto zero = r->device_->fill(r->device_slab_, 0, bytes);
  if (!zero) return zero.error();
  for (std::int64_t id = 0; id < slab.num_blocks(); ++id) {
    if (slab.met(id)) r->wrote(id);
  }
  slab.set_mirror(r.get());
  return r;
}

Residency::~Residency() {
  slab_.set_mirror(nullptr);
  if (device_slab_ != nullptr) device_->release(device_slab_);
  if (host_pages_ != nullptr) device_->release_host(host_pages_);
  for (const auto& [host, memory] : constants_) device_->release(memory);
  for (const auto& [host, m] : mirrors_) device_->release(m.memory);
  for (const auto& [size, memory] : spare_) device_->release(memory);
}

void Residency::begin_step(const std::vector<std::int32_t>& tables) {
  ++step_;
  for (auto it = mirrors_.begin(); it != mirrors_.end();) {
    it->second.device_valid = false;
    it->second.host_valid = true;
    // Memory of host tensors that came and went serves others.
    if (it->second.used + 2 < step_) {
      spare_.emplace(it->second.capacity, it->second.memory);
      it = mirrors_.erase(it);
    } else {
      ++it;
    }
  }
  tables_ = &tables;
  blocks_checked_ = false;
}

const std::vector<std::int32_t>& Residency::step_blocks() {
  if (tables_ == nullptr) return step_blocks_;
  step_blocks_.clear();
  for (const std::int32_t id : *tables_) {
    const auto i = to_size(id);
    if (id < 0 || i >= met_.size() || met_[i] == step_) continue;
    met_[i] = step_;
    step_blocks_.push_back(id);
  }
  for (std::int64_t id = slab_.first_pool_block(); id < slab_.num_blocks(); ++id) {
    step_blocks_.push_back(static_cast<std::int32_t>(id));
  }
  tables_ = nullptr;
  return step_blocks_;
}

bool Residency::is_constant(const void* host) const {
  const auto next = constant_ranges_.upper_bound(host);
  if (next == constant_ranges_.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return static_cast<const char*>(host) < static_cast<const char*>(begin) + size;
}

Result<as_tensor> Residency::constant(const as_tensor& host) {
  const auto& [begin, size] = *std::prev(constant_ranges_.upper_bound(host.data));
  void*& memory = constants_[begin];
  if (memory == nullptr) {
    auto made = device_->allocate(size);
    if (!made) return made.error();
    memory = *made;
    if (auto ok = device_->upload(memory, begin, size); !ok) return ok.error();
  }
  as_tensor t = host;
  t.data = static_cast<char*>(memory) +
           (static_cast<const char*>(host.data) - static_cast<const char*>(begin));
  t.device = 1;
  return t;
}

Result<Residency::Mirror*> Residency::mirror(const as_tensor& host) {
  Mirror& m = mirrors_[host.data];
  m.used = step_;
  const std::size_t bytes = tensor_bytes(host);
  if (m.memory != nullptr && m.capacity >= bytes) return &m;
  if (m.memory != nullptr) spare_.emplace(m.capacity, m.memory);
  m = Mirror{nullptr, 0, false, true, step_};
  if (const auto spare = spare_.lower_bound(bytes);
      spare != spare_.end() && spare->first <= 2 * bytes + (64u << 10)) {
    m.capacity = spare->first;
    m.memory = spare->second;
    spare_.erase(spare);
    return &m;
  }
  // Room to grow: a step of as many tokens more finds it.
  const std::size_t capacity = std::max<std::size_t>(256, bytes);
  auto memory = device_->allocate(capacity);
  if (!memory) {
    mirrors_.erase(host.data);
    return memory.error();
  }
  m.capacity = capacity;
  m.memory = *memory;
  return &m;
}

Result<void> Residency::to_device(as_tensor& tensor, bool written,
                                  std::optional<std::uint8_t> poison) {
  if (!present(tensor)) return {};
  if (is_constant(tensor.data)) {
    auto there = constant(tensor);
    if (!there) return there.error();
    tensor = *there;
    return {};
  }
  auto found = mirror(tensor);
  if (!found) return found.error();
  Mirror& m = **found;
  Result<void> ok;
  if (written) {
    if (poison) ok = device_->fill(m.memory, *poison, tensor_bytes(tensor));
    m.device_valid = true;
    m.host_valid = false;
  } else if (!m.device_valid) {
    ok = device_->upload(m.memory, tensor.data, tensor_bytes(tensor));
    m.device_valid = true;
  }
  tensor.data = m.memory;
  tensor.device = 1;
  return ok;
}

as_cache Residency::on_device(const as_cache& host) const {
  as_cache c = host;
  if (c.record == AS_RECORD_NONE) return c;
  c.data.data = device_slab_ + (static_cast<const unsigned char*>(host.data.data) - slab_.base());
  c.data.device = 1;
  return c;
}

Result<void> Residency::upload_blocks() {
  if (lost_) return *lost_;
  if (blocks_checked_) return {};
  const std::size_t bytes = to_size(slab_.block_stride());
  std::vector<std::int32_t> to_fill;
  for (const std::int32_t id : newly_.size() == num_newer_ ? newly_ : step_blocks()) {
    const auto i = to_size(id);
    if (!host_newer_[i]) continue;
    if (filled_[i]) {
      to_fill.push_back(id);
    } else {
      const std::size_t offset = i * bytes;
      auto ok = device_->upload(device_slab_ + offset, slab_.base() + offset, bytes);
      if (!ok) return ok;
    }
    host_newer_[i] = filled_[i] = false;
    --num_newer_;
  }
  std::erase_if(newly_, [this](std::int32_t id) { return !host_newer_[to_size(id)]; });
  if (!to_fill.empty()) {
    if (auto ok = device_->fill_pieces(device_slab_, bytes, to_fill, 0xFF); !ok) return ok;
  }
  blocks_checked_ = true;
  return {};
}

void Residency::device_wrote(std::int64_t block) {
  device_newer_[to_size(block)] = true;
  if (host_pages_ != nullptr) host_page_valid_[to_size(block)] = false;
}

Result<void> Residency::tensors_to_device(OpParams& there, bool poison) {
  const as_op_info& info = there.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind == AS_TAP_CACHE) continue;
    const bool written = tap.direction == AS_TAP_OUT;
    as_tensor& tensor = there.tensor(tap.offset);
    std::optional<std::uint8_t> byte;
    if (poison && written) byte = poison_byte(tap, tensor.dtype, step_ % 2 != 0);
    if (auto ok = to_device(tensor, written, byte); !ok) return ok;
  }
  if (as_rope* rope = rope_of(there); rope != nullptr && present(rope->table)) {
    auto table = constant(rope->table);
    if (!table) return table.error();
    rope->table = *table;
  }
  return {};
}

Result<void> Residency::call(as_op_fn function, const OpParams& there, int branch) {
  as_call call = host_call(nullptr);
  call.stream = device_->stream(branch);
  if (auto ok = device_->mark(branch, marks_++); !ok) return ok;
  if (auto ok = call_op(function, there.data(), call); !ok) return ok;
  return device_->mark(branch, marks_++);
}

Result<void> Residency::run(as_op_fn function, const OpParams& params, bool poison) {
  if (params.op() == AS_OP_EXCHANGE_ROWS) return exchange(function, params, poison);
  auto there = moved(params, poison);
  if (!there) return there.error();
  if (auto ok = call(function, *there); !ok) return ok;
  device_wrote(params);
  return {};
}

Result<OpLaunches> Residency::launches(as_op_fn function, const OpParams& params) {
  if (params.op() == AS_OP_EXCHANGE_ROWS) return OpLaunches::not_known("rows travel in pieces");
  const auto there = moved(params, false);
  if (!there) return there.error();
  return device_->launches([&] {
    as_call call = host_call(nullptr);
    call.stream = device_->stream(0);
    return call_op(function, there->data(), call);
  });
}

Result<void> Residency::run_part(as_op_fn function, const OpParams& params, TokenPart tokens) {
  if (params.op() == AS_OP_EXCHANGE_ROWS) return exchange(function, params, false);
  auto there = moved(params, false);
  if (!there) return there.error();
  if (auto ok = call(function, tokens_of(*there, tokens)); !ok) return ok;
  device_wrote(params);
  return {};
}

Result<OpParams> Residency::moved(const OpParams& params, bool poison) {
  OpParams there = params;
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind != AS_TAP_CACHE) continue;
    if (auto ok = upload_blocks(); !ok) return ok.error();
    there.cache(tap.offset) = on_device(params.cache(tap.offset));
  }
  if (auto ok = tensors_to_device(there, poison); !ok) return ok.error();
  return there;
}

void Residency::device_wrote(const OpParams& params) {
  each_block_written(params, [this](std::int64_t block) { device_wrote(block); });
}

Result<std::vector<double>> Residency::take_times() {
  std::vector<double> times;
  for (std::size_t i = 0; i + 1 < marks_; i += 2) {
    auto time = device_->between(i, i + 1);
    if (!time) return time.error();
    times.push_back(*time);
  }
  marks_ = 0;
  return times;
}

Result<void> Residency::before_host_op(const OpParams& params) { return fetch_taps(params, false); }

void Residency::after_host_op(const OpParams& params) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction == AS_TAP_OUT && tap.kind == AS_TAP_TENSOR) {
      host_wrote(params.tensor(tap.offset));
    }
  }
  each_block_written(params, [this](std::int64_t block) { wrote(block); });
}

Result<void> Residency::show(const OpParams& params) {
  if (auto ok = bring_taps(params, true); !ok) return forget_inputs(ok);
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind != AS_TAP_TENSOR || tap.direction != AS_TAP_IN) continue;
    const as_tensor& tensor = params.tensor(tap.offset);
    const auto it = mirrors_.find(tensor.data);
    if (it == mirrors_.end() || !it->second.device_valid) continue;
    inputs_.add(tensor.data, it->second.memory, tensor_bytes(tensor));
  }
  return run_inputs();
}

void Residency::host_wrote(const as_tensor& tensor) {
  const auto it = mirrors_.find(tensor.data);
  if (it == mirrors_.end()) return;
  it->second.device_valid = false;
  it->second.host_valid = true;
}

Result<void> Residency::fetch(const as_tensor& tensor) {
  const auto it = mirrors_.find(tensor.data);
  if (it == mirrors_.end() || it->second.host_valid) return {};
  if (auto ok = device_->download(tensor.data, it->second.memory, tensor_bytes(tensor)); !ok)
    return ok;
  if (auto ok = device_->synchronize(); !ok) return ok;
  it->second.host_valid = true;
  return {};
}

Result<void> Residency::fetch(const OpParams& params) { return fetch_taps(params, true); }

Result<void> Residency::fetch_taps(const OpParams& params, bool outputs) {
  if (auto ok = bring_taps(params, outputs); !ok) return forget_inputs(ok);
  return inputs_.any() ? run_inputs() : Result<void>();
}

Result<void> Residency::run_inputs() {
  const std::vector<Mirror*> brought = std::exchange(brought_, {});
  if (auto ok = inputs_.run(); !ok) return ok;
  for (Mirror* mirror : brought) mirror->host_valid = true;
  return {};
}

Result<void> Residency::forget_inputs(Result<void> why) {
  inputs_.forget();
  brought_.clear();
  return why;
}

Result<void> Residency::bring_taps(const OpParams& params, bool outputs) {
  fill_host();
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind == AS_TAP_TENSOR) {
      // What a host op is about to write stays as its caller has prepared it.
      if (!present(params.tensor(tap.offset)) || (!outputs && tap.direction == AS_TAP_OUT)) {
        continue;
      }
      const as_tensor& tensor = params.tensor(tap.offset);
      const auto it = mirrors_.find(tensor.data);
      if (it == mirrors_.end() || it->second.host_valid) continue;
      inputs_.bring(tensor.data, it->second.memory, tensor_bytes(tensor));
      brought_.push_back(&it->second);
      continue;
    }
    bool any = false;
    for (const std::int32_t id : step_blocks()) {
      auto ok = download_block(id, &any);
      if (!ok) return ok;
    }
    if (any) {
      if (auto ok = device_->synchronize(); !ok) return ok;
    }
  }
  return {};
}

Result<void> Residency::gather(const as_tensor& hidden, const std::vector<std::int64_t>& rows,
                               const as_tensor& last) {
  const auto from = mirrors_.find(hidden.data);
  if (from == mirrors_.end() || !from->second.device_valid) {
    host_wrote(last);
    return {};
  }
  const void* source = from->second.memory;
  auto to = mirror(last);
  if (!to) return to.error();
  const std::size_t bytes = to_size(hidden.stride[0] * as_dtype_size(hidden.dtype));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto ok = device_->copy(static_cast<char*>((*to)->memory) + i * bytes,
                            static_cast<const char*>(source) + to_size(rows[i]) * bytes, bytes);
    if (!ok) return ok;
  }
  (*to)->device_valid = true;
  (*to)->host_valid = false;
  return {};
}

Result<void> Residency::download_block(std::int64_t block, bool* any) {
  const auto i = to_size(block);
  if (block < 0 || i >= device_newer_.size() || !device_newer_[i]) return {};
  const std::int64_t offset = block * slab_.block_stride();
  auto ok = device_->download(slab_.base() + offset, device_slab_ + offset,
                              to_size(slab_.block_stride()));
  if (ok) {
    device_newer_[i] = false;
    *any = true;
  }
  return ok;
}

void Residency::fetch(std::int64_t block) {
  fill_host();
  if (lost_) return;
  bool any = false;
  Result<void> ok = download_block(block, &any);
  if (ok && any) ok = device_->synchronize();
  if (!ok) lost_ = ok.error();
}

void Residency::wrote(std::int64_t block) {
  const auto i = to_size(block);
  if (!host_newer_[i]) {
    host_newer_[i] = true;
    ++num_newer_;
    newly_.push_back(static_cast<std::int32_t>(block));
  }
  device_newer_[i] = filled_[i] = false;
  if (host_pages_ != nullptr) host_page_valid_[i] = false;
  blocks_checked_ = false;
}

void Residency::fill(std::int64_t block) {
  const auto i = to_size(block);
  wrote(block);
  filled_[i] = true;
  if (!unwritten_[i]) to_fill_.push_back(block);
  unwritten_[i] = true;
}

void Residency::fill_host() {
  for (const std::int64_t block : to_fill_) {
    slab_.fill(block);
    unwritten_[to_size(block)] = false;
  }
  to_fill_.clear();
}

void Residency::host_wrote_all_blocks() {
  fill_host();
  host_newer_.assign(host_newer_.size(), true);
  num_newer_ = host_newer_.size();
  newly_.clear();
  device_newer_.assign(device_newer_.size(), false);
  host_page_valid_.assign(host_page_valid_.size(), false);
  filled_.assign(filled_.size(), false);
  blocks_checked_ = false;
}

}  // namespace attnscope
