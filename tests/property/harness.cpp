#include "tests/property/harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ostream>

#include "engine/io/content_hash.h"
#include "kernels/cpu/rope_table.h"

namespace attnscope::properties {
namespace {

constexpr std::int64_t kGuardBytes = 64;

const Tolerances& tolerances() {
  static const Tolerances kTolerances = [] {
    auto loaded = Tolerances::load(ATTNSCOPE_SOURCE_DIR "/assets/tolerances.json");
    if (!loaded) {
      fmt::print(stderr, "{}\n", loaded.error().text());
      std::abort();
    }
    return *loaded;
  }();
  return kTolerances;
}

bool is_float(std::int32_t dtype) { return dtype == AS_F64 || dtype == AS_F32 || dtype == AS_BF16; }

// Hash of all input tensors that are not also outputs.
std::uint64_t hash_inputs(const OpParams& params) {
  const as_op_info& info = params.info();
  std::set<const void*> written;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction == AS_TAP_OUT && tap.kind == AS_TAP_TENSOR) {
      written.insert(params.tensor(tap.offset).data);
    }
  }
  std::uint64_t h = 0;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_IN) continue;
    const bool cache = tap.kind == AS_TAP_CACHE;
    const as_tensor& t = cache ? params.cache(tap.offset).data : params.tensor(tap.offset);
    if (!present(t) || written.count(t.data) > 0) continue;
    const std::int64_t bytes = t.shape[t.rank - 1] * as_dtype_size(t.dtype);
    for_each_row(t, [&](std::int64_t, char* row) {
      h = content_hash(row, static_cast<std::size_t>(bytes), h);
    });
  }
  return h;
}

const as_rope& rope_of(double base, double factor, std::vector<float>* table, as_rope* rope) {
  constexpr std::int64_t kRows = 4096;
  *rope = {no_tensor(), base, factor, 65536.0, 32.0, 1.0};
  table->resize(static_cast<std::size_t>(kRows * AS_ROPE_DIM));
  cpu::build_rope_table(*rope, kRows, table->data(), nullptr);
  rope->table = make_tensor(table->data(), {kRows, AS_ROPE_DIM});
  return *rope;
}

const as_tap_info* find_tap(const OpParams& params, std::string_view name) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    if (name == info.taps[i].name) return &info.taps[i];
  }
  return nullptr;
}

}  // namespace

std::uint64_t case_seed(std::string_view name) {
  const char* base = std::getenv("ATTNSCOPE_PROPERTY_SEED");
  std::uint64_t seed = base != nullptr ? std::strtoull(base, nullptr, 10) : 0;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return seed;
}

bf16_t to_bf16(float value) { return {cpu::float_to_bf16(value)}; }
float to_float(bf16_t value) { return cpu::bf16_to_float(value.bits); }

void Report::fail(const std::string& tap, const std::string& what) {
  taps_.insert(tap);
  failures_.push_back(tap + ": " + what);
}

std::ostream& operator<<(std::ostream& out, const Report& report) {
  const char* base = std::getenv("ATTNSCOPE_PROPERTY_SEED");
  out << "seed " << report.seed_ << " (ATTNSCOPE_PROPERTY_SEED=" << (base ? base : "0") << ")";
  for (const std::string& failure : report.failures_) out << "\n  " << failure;
  return out;
}

as_tensor Memory::make(std::int32_t dtype, std::vector<std::int64_t> shape, std::int64_t pad) {
  as_tensor t{};
  t.dtype = dtype;
  t.rank = static_cast<std::int32_t>(shape.size());
  std::int64_t stride = 1;
  for (std::int32_t i = t.rank - 1; i >= 0; --i) {
    t.shape[i] = shape[static_cast<std::size_t>(i)];
    if (i == 0 && t.rank > 1) stride += pad;
    t.stride[i] = stride;
    stride *= t.shape[i];
  }
  const std::int64_t elements = t.rank > 1 ? t.shape[0] * t.stride[0] : t.shape[0];
  Block block;
  block.poison = dtype == AS_I32 || dtype == AS_I64 ? kIntegerPoison : 0xff;
  block.size = static_cast<std::size_t>(elements * as_dtype_size(dtype) + 2 * kGuardBytes);
  block.bytes = std::make_unique<unsigned char[]>(block.size);
  std::memset(block.bytes.get(), block.poison, block.size);
  t.data = block.bytes.get() + kGuardBytes;
  block.tensor = t;
  blocks_.push_back(std::move(block));
  return t;
}

as_tensor Memory::ints(const std::vector<std::int32_t>& values, std::vector<std::int64_t> shape) {
  as_tensor t = make(AS_I32, std::move(shape));
  std::copy(values.begin(), values.end(), at<std::int32_t>(t));
  return t;
}

as_tensor Memory::ints64(const std::vector<std::int64_t>& values) {
  as_tensor t = make(AS_I64, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), at<std::int64_t>(t));
  return t;
}

as_tensor Memory::normals(std::int32_t dtype, std::vector<std::int64_t> shape, Random& random,
                          float scale, std::int64_t pad) {
  as_tensor t = make(dtype, std::move(shape), pad);
  for_each_row(t, [&](std::int64_t, char* row) {
    for (std::int64_t i = 0; i < t.shape[t.rank - 1]; ++i) {
      const float value = scale * normal(random);
      if (dtype == AS_F32) reinterpret_cast<float*>(row)[i] = value;
      if (dtype == AS_BF16) reinterpret_cast<bf16_t*>(row)[i] = to_bf16(value);
    }
  });
  return t;
}

void Memory::check_guards(Report* report) const {
  for (const Block& block : blocks_) {
    // What lies outside the rows: poison alone, so each byte equals the next one.
    std::vector<unsigned char> outside(block.bytes.get(), block.bytes.get() + block.size);
    const as_tensor& t = block.tensor;
    const std::int64_t bytes = t.shape[t.rank - 1] * as_dtype_size(t.dtype);
    for_each_row(t, [&](std::int64_t, char* row) {
      const auto first = reinterpret_cast<unsigned char*>(row) - block.bytes.get();
      std::memset(outside.data() + first, block.poison, static_cast<std::size_t>(bytes));
    });
    if (outside[0] == block.poison &&
        std::memcmp(outside.data(), outside.data() + 1, block.size - 1) == 0) {
      continue;
    }
    for (std::size_t i = 0; i < block.size; ++i) {
      if (outside[i] == block.poison) continue;
      return report->fail("guards", fmt::format("byte {} outside a {} tensor of rank {} was "
                                                "overwritten",
                                                static_cast<std::int64_t>(i) - kGuardBytes,
                                                as_dtype_name(t.dtype), t.rank));
    }
  }
}

void for_each_row(const as_tensor& t, const std::function<void(std::int64_t, char*)>& visit) {
  const std::int64_t columns = t.shape[t.rank - 1];
  if (as_tensor_numel(&t) == 0) return;
  const std::int64_t rows = as_tensor_numel(&t) / columns;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t offset = 0;
    std::int64_t left = row;
    for (std::int32_t axis = t.rank - 2; axis >= 0; --axis) {
      offset += left % t.shape[axis] * t.stride[axis];
      left /= t.shape[axis];
    }
    visit(row, static_cast<char*>(t.data) + offset * as_dtype_size(t.dtype));
  }
}

Tokens last_tokens(const std::vector<std::int64_t>& lengths, std::int64_t queries) {
  Tokens tokens;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    for (std::int64_t p = std::max<std::int64_t>(0, lengths[r] - queries); p < lengths[r]; ++p) {
      tokens.token_to_req.push_back(static_cast<std::int32_t>(r));
      tokens.positions.push_back(p);
    }
  }
  return tokens;
}

const as_rope& plain_rope() {
  static std::vector<float> table;
  static as_rope storage;
  static const as_rope& rope = rope_of(10000.0, 1.0, &table, &storage);
  return rope;
}

const as_rope& compressed_rope() {
  static std::vector<float> table;
  static as_rope storage;
  static const as_rope& rope = rope_of(160000.0, 16.0, &table, &storage);
  return rope;
}

bool run(const Lane& lane, const OpParams& params, Report* report) {
  const as_op_fn own = lane.ops[params.op()];
  const as_op_fn function = own != nullptr ? own : cpu::lane()->ops[params.op()];
  const std::uint64_t before = hash_inputs(params);
  as_error error{};
  as_call call{};
  call.struct_size = sizeof(call);
  if (function(params.data(), &call, &error) != AS_OK) {
    report->fail("call",
                 fmt::format("{} refused {}: {}", lane.name, params.info().name, error.message));
    return false;
  }
  if (hash_inputs(params) != before) report->fail("inputs", "an input was changed");
  return true;
}

OpParams with_own_outputs(const OpParams& params, Memory* memory) {
  OpParams own = params;
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_TENSOR) continue;
    const as_tensor& t = params.tensor(tap.offset);
    if (!present(t)) continue;
    own.tensor(tap.offset) = memory->make(is_float(t.dtype) ? AS_F64 : t.dtype,
                                          std::vector<std::int64_t>(t.shape, t.shape + t.rank));
  }
  return own;
}

void judge(const OpParams& value, const OpParams& sim, std::string_view name, Report* report) {
  const as_tap_info* tap = find_tap(value, name);
  auto rule =
      tolerances().find(value.op(), tap->name, report->lane(), tolerance_class(value, *tap));
  if (!rule) return report->fail(tap->name, rule.error().text());
  const as_tensor& ours = value.tensor(tap->offset);
  const as_tensor& theirs = sim.tensor(tap->offset);
  Comparison result;
  if (rule->top_k) {
    const auto& p = value.get<as_indexer_topk_params>();
    result = compare_top_k(ours, theirs, p.logits, at<std::int32_t>(p.lens), *rule);
  } else {
    TapMask mask;
    if (tap->mask == AS_MASK_SLOTS) mask.slots = at<std::int64_t>(value.tensor(tap->mask_offset));
    if (tap->mask == AS_MASK_LENS) mask.lens = at<std::int32_t>(value.tensor(tap->mask_offset));
    result = compare(ours, theirs, mask, *rule);
  }
  if (result.within) return;
  report->fail(
      tap->name,
      fmt::format("{} of its {} bound at [{}], {} against ref.sim {}; cosine {}. {}",
                  result.budget_used, rule->name, fmt::join(result.worst.index, ","),
                  result.worst.value, result.worst.reference, result.figures.cosine, result.note));
}

void judge_all(const OpParams& value, const OpParams& sim, Report* report) {
  const as_op_info& info = value.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction == AS_TAP_OUT && tap.kind == AS_TAP_TENSOR &&
        present(value.tensor(tap.offset))) {
      judge(value, sim, tap.name, report);
    }
  }
}

void judge_equal(const std::string& tap, const as_tensor& value, const as_tensor& expected,
                 Report* report) {
  Tolerance exact;
  exact.exact = true;
  const Comparison result = compare(value, expected, {}, exact);
  if (result.within) return;
  report->fail(
      tap, fmt::format("{} at [{}], expected {}. {}", result.worst.value,
                       fmt::join(result.worst.index, ","), result.worst.reference, result.note));
}

void judge_integers(const OpParams& engine, Memory* memory, Report* report) {
  for (const Lane* lane : {reference::sim_lane(), reference::exact_lane()}) {
    const OpParams own = with_own_outputs(engine, memory);
    if (!run(*lane, own, report)) return;
    const as_op_info& info = engine.info();
    for (std::uint32_t i = 0; i < info.num_taps; ++i) {
      const as_tap_info& tap = info.taps[i];
      if (tap.direction != AS_TAP_OUT || !present(engine.tensor(tap.offset))) continue;
      judge_equal(tap.name, engine.tensor(tap.offset), own.tensor(tap.offset), report);
    }
  }
}

void judge_bound(const std::string& tap, const as_tensor& value, const as_tensor& exact,
                 const std::int64_t* slots, const Bound& bound, Report* report) {
  const std::int64_t columns = value.shape[value.rank - 1];
  if (as_tensor_numel(&value) == 0) return;
  const std::int64_t per_token = as_tensor_numel(&value) / columns / value.shape[0];
  double worst = 1.0;
  std::string what;
  for_each_row(value, [&](std::int64_t row, char*) {
    if (slots != nullptr && slots[row / per_token] < 0) return;
    for (std::int64_t c = 0; c < columns; ++c) {
      const double a = element(value, row, c);
      const double b = element(exact, row, c);
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      const double limit = bound(row, c, b);
      if (std::isinf(limit)) continue;
      const double used = std::fabs(a - b) / limit;
      if (used <= worst) continue;
      worst = std::isnan(used) ? INFINITY : used;
      what = fmt::format("{} against ref.exact {} at row {}, column {}; allowed {}", a, b, row, c,
                         limit);
    }
  });
  if (!what.empty()) report->fail(tap, what);
}

}  // namespace attnscope::properties
