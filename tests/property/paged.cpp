#include "tests/property/paged.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/model/model_config.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/layout/records.h"
#include "kernels/mutants/mutants.h"
#include "reference/register.h"

namespace attnscope::property {
namespace {

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace

float normal(Random& random, float deviation) {
  return std::normal_distribution<float>(0.0f, deviation)(random);
}

std::vector<bf16_t> random_bf16(Random& random, std::int64_t n, float deviation) {
  std::vector<bf16_t> v(to_size(n));
  for (bf16_t& x : v) x.bits = cpu::float_to_bf16(normal(random, deviation));
  return v;
}

std::vector<float> random_f32(Random& random, std::int64_t n, float deviation) {
  std::vector<float> v(to_size(n));
  for (float& x : v) x = normal(random, deviation);
  return v;
}

PagedRows::PagedRows(std::int32_t record, int width, int rows_per_block,
                     std::vector<std::int64_t> lengths, Random& random)
    : record_(record),
      width_(width),
      rows_per_block_(rows_per_block),
      lengths_(std::move(lengths)) {
  page_bytes_ = as_page_bytes(record, width, rows_per_block);
  stride_ = page_bytes_ + 576;  // bytes of somebody else between two pages
  columns_ = 1;
  std::int64_t needed = 0, rows = 0;
  for (std::int64_t n : lengths_) {
    const std::int64_t blocks = (n + rows_per_block - 1) / rows_per_block;
    columns_ = std::max(columns_, blocks);
    needed += blocks;
    base_.push_back(rows);
    logical_table_.push_back(static_cast<std::int32_t>(rows));
    rows += n;
  }
  base_.push_back(rows);
  blocks_ = needed + 5;
  std::vector<std::int32_t> ids(to_size(blocks_ - 1));
  std::iota(ids.begin(), ids.end(), 1);
  std::shuffle(ids.begin(), ids.end(), random);
  table_.assign(lengths_.size() * to_size(columns_), AS_NULL_BLOCK);
  std::size_t next = 0;
  for (std::size_t r = 0; r < lengths_.size(); ++r) {
    const std::int64_t blocks = (lengths_[r] + rows_per_block - 1) / rows_per_block;
    for (std::int64_t b = 0; b < blocks; ++b) {
      table_[r * to_size(columns_) + to_size(b)] = ids[next++];
    }
  }
  slab_.assign(to_size(blocks_ * stride_), 0xFF);
  logical_.assign(to_size(std::max<std::int64_t>(1, rows) * as_row_bytes(record, width)), 0xFF);
  mark_ = slab_;
}

as_cache PagedRows::paged() const {
  as_cache c{};
  c.data = make_tensor(slab_.data(), {blocks_, page_bytes_});
  c.data.stride[0] = stride_;
  c.record = record_;
  c.addressing = AS_PAGED;
  c.rows_per_block = rows_per_block_;
  c.width = width_;
  return c;
}

as_cache PagedRows::logical() const {
  as_cache c{};
  const std::int64_t rows = std::max<std::int64_t>(1, base_.back());
  c.data = record_ == AS_RECORD_STATE
               ? make_tensor(const_cast<std::uint8_t*>(logical_.data()), AS_F32, {rows, width_})
               : make_tensor(logical_.data(), {rows, as_row_bytes(record_, width_)});
  c.record = record_;
  c.addressing = AS_LOGICAL;
  c.width = width_;
  return c;
}

void PagedRows::fill(Random& random) {
  as_cache pages = paged(), twin = logical();
  std::vector<float> values(to_size(width_));
  for (std::size_t r = 0; r < lengths_.size(); ++r) {
    for (std::int64_t p = 0; p < lengths_[r]; ++p) {
      const as_row_address to = as_cache_row(&twin, row(static_cast<std::int64_t>(r), p));
      for (float& v : values) v = cpu::round_bf16(normal(random));
      if (record_ == AS_RECORD_STATE) {
        std::memcpy(to.payload, values.data(), values.size() * sizeof(float));
      } else {
        cpu::quantise_row(record_, width_, values.data(), to.payload, to.scales);
      }
      const as_row_address page = as_cache_row(&pages, slot(static_cast<std::int64_t>(r), p));
      std::memcpy(page.payload, to.payload, to_size(as_payload_bytes(record_, width_)));
      if (page.scales != nullptr) {
        std::memcpy(page.scales, to.scales, to_size(as_scale_bytes(record_)));
      }
    }
  }
}

std::int64_t PagedRows::slot(std::int64_t request, std::int64_t position) const {
  const std::int64_t block = table_[to_size(request * columns_ + position / rows_per_block_)];
  return block * rows_per_block_ + position % rows_per_block_;
}

as_tensor PagedRows::table() const {
  return make_tensor(table_.data(), {static_cast<std::int64_t>(lengths_.size()), columns_});
}

as_tensor PagedRows::logical_table() const {
  return make_tensor(logical_table_.data(), {static_cast<std::int64_t>(lengths_.size()), 1});
}

std::vector<std::uint8_t> PagedRows::bytes(std::int64_t at) const {
  const as_cache pages = paged();
  const as_row_address row = as_cache_row(&pages, at);
  std::vector<std::uint8_t> out(row.payload, row.payload + as_payload_bytes(record_, width_));
  if (row.scales != nullptr) {
    out.insert(out.end(), row.scales, row.scales + as_scale_bytes(record_));
  }
  return out;
}

bool PagedRows::unchanged_outside(const std::vector<std::int64_t>& slots) const {
  std::vector<std::uint8_t> expected = mark_;
  const as_cache pages = paged();
  const auto keep = [&](const unsigned char* from, std::int64_t n) {
    std::copy_n(from, n, expected.begin() + (from - slab_.data()));
  };
  for (std::int64_t at : slots) {
    const as_row_address row = as_cache_row(&pages, at);
    keep(row.payload, as_payload_bytes(record_, width_));
    if (row.scales != nullptr) keep(row.scales, as_scale_bytes(record_));
  }
  return expected == slab_;
}

void run(const as_lane& lane, const OpParams& params) {
  as_error error{};
  as_call call{};
  call.struct_size = sizeof(call);
  ASSERT_NE(lane.ops[params.op()], nullptr) << lane.name << " lacks " << params.info().name;
  ASSERT_EQ(lane.ops[params.op()](params.data(), &call, &error), AS_OK)
      << lane.name << ": " << error.message;
}

const as_lane& cpu_lane() { return *cpu::lane(); }
const as_lane& sim() { return *reference::sim_lane(); }
const as_lane& exact() { return *reference::exact_lane(); }

const as_lane& mutant(const std::string& name) {
  for (const as_lane& lane : mutants::lanes()) {
    if (name == lane.name) return lane;
  }
  ADD_FAILURE() << "no lane " << name;
  return cpu_lane();
}

Comparison check(const OpParams& params, const std::string& tap, const as_tensor& value,
                 const as_tensor& reference, const TapMask& mask, const std::string& rule) {
  static const Tolerances tolerances = [] {
    auto t = Tolerances::load(std::string(ATTNSCOPE_SOURCE_DIR) + "/assets/tolerances.json");
    EXPECT_TRUE(t) << t.error().text();
    return *t;
  }();
  std::string name = rule;
  for (std::uint32_t i = 0; name.empty() && i < params.info().num_taps; ++i) {
    const as_tap_info& info = params.info().taps[i];
    if (info.direction == AS_TAP_OUT && tap == info.name) name = info.rule;
  }
  const auto found = tolerances.find(params.op(), tap, "cpu", name);
  EXPECT_TRUE(found) << found.error().text();
  return compare(value, reference, mask, *found);
}

const as_rope& rope() {
  static std::vector<float> table(static_cast<std::size_t>(4096) * AS_ROPE_DIM);
  static const as_rope instance = [] {
    as_rope r = preset("tiny")->rope(1);
    cpu::build_rope_table(r, 4096, table.data(), nullptr);
    r.table = make_tensor(table.data(), {4096, AS_ROPE_DIM});
    return r;
  }();
  return instance;
}

}  // namespace attnscope::property
