// Rows between pages in host memory, which the device reads and writes by itself, and the pool.
#include <algorithm>

#include "engine/model/numbers.h"
#include "engine/session/device/residency.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Calls visit(slot) for each slot that is one.
template <class Visit>
Result<void> each_slot(const as_tensor& slots, const Visit& visit) {
  for (std::int64_t n = 0; n < slots.shape[0]; ++n) {
    const std::int64_t slot = *at<std::int64_t>(slots, n);
    if (slot < 0) continue;
    if (Result<void> ok = visit(slot); !ok) return ok;
  }
  return {};
}

}  // namespace

Result<void> Residency::renew_host_page(std::int64_t block) {
  const auto i = to_size(block), stride = to_size(slab_.block_stride());
  if (host_pages_ == nullptr) {
    auto memory = device_->allocate_host(to_size(slab_.num_blocks()) * stride);
    if (!memory) return memory.error();
    host_pages_ = static_cast<unsigned char*>(*memory);
    host_page_valid_.assign(to_size(slab_.num_blocks()), false);
  }
  if (host_page_valid_[i]) return {};
  const std::uint8_t* newest = slab_.block(block);
  if (lost_) return *lost_;
  std::copy_n(newest, stride, host_pages_ + i * stride);
  host_page_valid_[i] = true;
  return {};
}

Result<void> Residency::exchange(as_op_fn function, const OpParams& params, bool poison,
                                 const std::function<Result<void>()>& meanwhile) {
  const auto& p = params.get<as_exchange_rows_params>();
  const std::int64_t rows = p.pages.rows_per_block;
  // What the calls before may still be reading is not written to.
  if (auto ok = device_->synchronize(); !ok) return ok;
  for (const as_tensor* slots : {&p.missed_from, &p.pages_to}) {
    auto ok = each_slot(*slots, [&](std::int64_t slot) { return renew_host_page(slot / rows); });
    if (!ok) return ok;
  }
  if (auto ok = upload_blocks(); !ok) return ok;
  OpParams there = params;
  auto& q = there.get<as_exchange_rows_params>();
  q.fresh = on_device(p.fresh);
  q.pool = on_device(p.pool);
  for (as_cache* pages : {&q.pages, &q.missed}) {
    const auto offset = static_cast<const unsigned char*>(pages->data.data) - slab_.base();
    pages->data.data =
        host_pages_ != nullptr ? host_pages_ + offset : device_slab_ + offset;  // no row is named
    pages->data.device = 1;
  }
  if (auto ok = tensors_to_device(there, poison); !ok) return ok;
  constexpr int kBeside = 1;  // the stream of rows that travel while something else runs
  if (meanwhile) {
    if (auto ok = device_->order(kBeside, 0); !ok) return ok;
  }
  if (auto ok = call(function, there, meanwhile ? kBeside : 0); !ok) return ok;
  if (meanwhile) {
    if (auto ok = meanwhile(); !ok) return ok;
  }
  static_cast<void>(each_slot(p.pool_to, [&](std::int64_t slot) -> Result<void> {
    device_wrote(slot / rows);
    return {};
  }));
  // What has come back is the host's newest, too.
  if (auto ok = device_->synchronize(); !ok) return ok;
  as_cache back = p.pages;
  return each_slot(p.pages_to, [&](std::int64_t slot) -> Result<void> {
    const std::int64_t block = slot / rows;
    back.data.data = q.pages.data.data;
    as_row_copy(&back, slot, &p.pages, slot);
    wrote(block);
    host_page_valid_[to_size(block)] = true;
    return {};
  });
}

}  // namespace attnscope
