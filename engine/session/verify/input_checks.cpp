#include "engine/session/verify/input_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string_view>

#include "engine/backend/call_op.h"
#include "engine/model/numbers.h"
#include "engine/session/verify/forced_copy.h"
#include "engine/session/verify/stale_drafts.h"
#include "engine/trace/row_sums.h"
#include "kernels/cpu/parallel.h"
#include "kernels/layout/records.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// One list of the metadata against what it must be.
class ListCheck {
 public:
  template <class T>
  void hold(const char* name, const std::vector<T>& is, const std::vector<T>& must,
            bool of_tokens) {
    std::int64_t beyond = 0, first = -1;
    for (std::size_t i = 0; i < std::max(is.size(), must.size()); ++i) {
      if (i < is.size() && i < must.size() && is[i] == must[i]) continue;
      if (beyond++ == 0) first = static_cast<std::int64_t>(i);
    }
    if (beyond == 0) return;
    const auto shown = [&](const std::vector<T>& list) {
      return to_size(first) < list.size() ? fmt::format("{}", list[to_size(first)])
                                          : std::string("missing");
    };
    found.push_back(wrong_result(
        AS_OP_SCHEDULE, std::string(name) + kMetadataTap, static_cast<std::int64_t>(must.size()),
        beyond,
        fmt::format("{} {}{}: is {}, must be {}; {} of {} differ", of_tokens ? "token" : "place",
                    first, of_tokens ? place(first) : "", shown(is), shown(must), beyond,
                    must.size())));
  }
  std::vector<std::int32_t> ids;       // request of a token
  std::vector<std::int64_t> position;  // of a token
  std::vector<TapResult> found;

 private:
  std::string place(std::int64_t t) const {
    if (to_size(t) >= ids.size()) return {};
    return fmt::format(" (request {}, position {})", ids[to_size(t)], position[to_size(t)]);
  }
};

// Whether one of the words, whose exponents of 8 bits lie `shift` bits up, is finite and of 2^60 or
// more. A loop without a way out, which takes vectors.
template <class Word>
bool any_huge(const Word* words, std::int64_t count, int shift) {
  constexpr Word kInfinite = 255, kLimit = 127 + 60;
  Word found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Word exponent = static_cast<Word>(words[i] >> shift) & kInfinite;
    found |= static_cast<Word>(exponent >= kLimit) & static_cast<Word>(exponent != kInfinite);
  }
  return found != 0;
}

// Of a row of a bf16 or fp32 tensor.
bool has_huge(const as_tensor& t, std::int64_t row) {
  const std::int64_t count = as_tensor_numel(&t) / t.shape[0], begin = row * t.stride[0];
  return t.dtype == AS_BF16
             ? any_huge(static_cast<const std::uint16_t*>(t.data) + begin, count, 7)
             : any_huge(static_cast<const std::uint32_t*>(t.data) + begin, count, 23);
}

constexpr std::size_t kWordsOfPart = std::size_t{1} << 14;  // that a thread hashes at least

// The sum of what words from a place on, and their places in the tensor, are mixed to.
template <class Word>
[[gnu::always_inline]] inline std::uint64_t mixed(const char* bytes, std::uint64_t place,
                                                  std::size_t count) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i, ++place) {
    Word word;
    std::memcpy(&word, bytes + place * sizeof(Word), sizeof(Word));
    std::uint64_t x =
        (static_cast<std::uint64_t>(word) + 1) * 0x9e3779b97f4a7c15u ^ place * 0xc2b2ae3d27d4eb4fu;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    sum += x ^ (x >> 32);
  }
  return sum;
}

#ifdef __x86_64__
// Which multiplies eight numbers of 64 bits at once.
template <class Word>
[[gnu::target("avx512f,avx512dq,avx512bw,avx512vl")]] std::uint64_t mixed_512(const char* bytes,
                                                                              std::uint64_t place,
                                                                              std::size_t count) {
  return mixed<Word>(bytes, place, count);
}
#endif

template <class Word>
std::uint64_t mixed_in_row(const char* bytes, std::uint64_t place, std::size_t count) {
#ifdef __x86_64__
  static const bool kWide = widest() == RowWidth::k512;
  if (kWide) return mixed_512<Word>(bytes, place, count);
#endif
  return mixed<Word>(bytes, place, count);
}

// Of each row, so that the sum over all rows is that of the tensor, however its shape is read.
template <class Word>
RowHashes hash_rows_as(const as_tensor& t, std::size_t rows, std::size_t per_row,
                       const as_threads* threads) {
  const auto* bytes = static_cast<const char*>(t.data);
  RowHashes hashes(rows, 0);
  const std::int64_t grain = to_count(1 + kWordsOfPart / per_row);
  cpu::parallel_for(threads, to_count(rows), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::size_t r = to_size(begin); r < to_size(end); ++r) {
      hashes[r] = mixed_in_row<Word>(bytes, r * per_row, per_row);
    }
  });
  return hashes;
}

RowHashes hash_rows(const as_tensor& t, const as_threads* threads) {
  const std::size_t elements = to_size(as_tensor_numel(&t));
  if (elements == 0) return {};
  const std::size_t rows = to_size(t.shape[0]);
  const std::size_t bytes = elements / rows * to_size(as_dtype_size(t.dtype));
  // Eight bytes at once: numbers are by token in every shape that they are read in.
  if (is_float(t.dtype) && bytes % 8 == 0) {
    return hash_rows_as<std::uint64_t>(t, rows, bytes / 8, threads);
  }
  switch (as_dtype_size(t.dtype)) {
    case 1:
      return hash_rows_as<std::uint8_t>(t, rows, elements / rows, threads);
    case 2:
      return hash_rows_as<std::uint16_t>(t, rows, elements / rows, threads);
    case 4:
      return hash_rows_as<std::uint32_t>(t, rows, elements / rows, threads);
    default:
      return hash_rows_as<std::uint64_t>(t, rows, elements / rows, threads);
  }
}

std::uint64_t sum_of(const RowHashes& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::uint64_t{0});
}

// "token 3 (request 0, position 18)", of rows that are the step's tokens.
std::string token_of(const StepMetadata& step, std::int64_t t) {
  return fmt::format("token {} (request {}, position {})", t,
                     step.live[to_size(step.token_to_req[to_size(t)])], step.positions[to_size(t)]);
}

// Activations and lists: neither weights nor caches nor what lies on a device.
bool looked_at(const as_tap_info& tap, const as_tensor& t) {
  return tap.kind == AS_TAP_TENSOR && present(t) && t.device == 0 &&
         std::string_view(tap.name) != "weight" && tap.axes[0] != 'H';
}

}  // namespace

std::vector<TapResult> check_tokens(const StepMetadata& step, const Serving& serving) {
  ListCheck lists;
  std::vector<std::int32_t> tokens, rows, starts = {0}, lengths, sampled_of;
  std::vector<std::int64_t> sampled;
  for (std::int32_t r = 0; r < static_cast<std::int32_t>(step.live.size()); ++r) {
    const std::int32_t id = step.live[to_size(r)];
    const Request& request = serving.requests()[to_size(id)];
    const auto& drafts = serving.drafts()[to_size(r)];
    const std::size_t decided = request.tokens.size();
    const std::int64_t first = step.num_computed[to_size(r)];
    const std::int64_t end = first + step.num_scheduled_tokens[to_size(r)];
    for (std::int64_t p = first; p < end; ++p) {
      if (to_size(p) + 1 >= decided) {
        sampled.push_back(static_cast<std::int64_t>(tokens.size()));
        sampled_of.push_back(r);
      }
      const std::size_t draft = to_size(p) - decided;  // of a position behind the decided ones
      tokens.push_back(to_size(p) < decided    ? request.tokens[to_size(p)]
                       : draft < drafts.size() ? drafts[draft]
                                               : -1);
      rows.push_back(r);
      lists.position.push_back(p);
      lists.ids.push_back(id);
    }
    starts.push_back(static_cast<std::int32_t>(tokens.size()));
    lengths.push_back(static_cast<std::int32_t>(end));
  }
  lists.hold("tokens", step.tokens, tokens, true);
  lists.hold("positions", step.positions, lists.position, true);
  lists.hold("token_to_req", step.token_to_req, rows, true);
  lists.hold("query_start_loc", step.query_start_loc, starts, false);
  lists.hold("seq_lens", step.seq_lens, lengths, false);
  lists.hold("sample_rows", step.sample_rows, sampled, false);
  lists.hold("sample_request", step.sample_request, sampled_of, false);
  return std::move(lists.found);
}

std::vector<TapResult> check_next(const StepMetadata& step, const Serving& serving,
                                  const as_tensor& sampled) {
  ListCheck lists;
  std::vector<std::int32_t> next;
  std::int64_t used = 0;
  for (std::size_t r = 0; r < step.live.size(); ++r) {
    const Request& request = serving.requests()[to_size(step.live[r])];
    const std::int64_t known = to_count(request.tokens.size()), first = step.num_computed[r];
    for (std::int64_t p = first; p < first + step.num_scheduled_tokens[r]; ++p) {
      next.push_back(p < known - 1 ? request.tokens[to_size(p + 1)]
                                   : *at<std::int32_t>(sampled, used++));
      lists.position.push_back(p);
      lists.ids.push_back(request.id);
    }
  }
  const auto told = std::ranges::find(step.own, StepTensor::Kind::kNext, &StepTensor::kind);
  lists.hold(told->name, told->numbers, next, true);
  return std::move(lists.found);
}

std::optional<TapResult> check_drafted_hits(const ModelConfig& config, const CacheLayout& layout,
                                            const Serving& serving) {
  for (const StaleDraft& stale : stale_drafts(config, layout, serving)) {
    if (serving.options().kv.groups[to_size(stale.group)].flagged) continue;
    return wrong_result(
        AS_OP_SCHEDULE, std::string("hit") + kMetadataTap, stale.position + 1, 1,
        fmt::format("request {} takes over {} tokens, and the draft layer's row of the last one, "
                    "of request {}, was made of another token behind it: its group is not flagged, "
                    "and the hit is a block too long",
                    stale.request, stale.position + 1, stale.donor));
  }
  return {};
}

std::optional<TapResult> check_embedded(const as_tensor& h, const StepMetadata& step,
                                        const Weights& weights) {
  const std::int64_t hidden = h.shape[1];
  std::int64_t beyond = 0, first = -1;
  for (std::int64_t t = 0; t < h.shape[0]; ++t) {
    const bf16_t* row = weights.embedding() + step.tokens[to_size(t)] * hidden;
    if (std::memcmp(at<bf16_t>(h, t), row, to_size(2 * hidden)) == 0) continue;
    if (beyond++ == 0) first = t;
  }
  if (beyond == 0) return {};
  return wrong_result(AS_OP_ATTN_NORM, std::string("embedding") + kMetadataTap, h.shape[0], beyond,
                      fmt::format("{}: the hidden state is not the embedding of its token {}",
                                  token_of(step, first), step.tokens[to_size(first)]));
}

namespace {

// Rows of a table as ref.exact computes them at these positions: cos, then sin.
class AnglesOfReference {
 public:
  AnglesOfReference(const as_rope& rope, std::vector<std::int64_t> positions)
      : rope_(rope), positions_(std::move(positions)), dims_(rope.table.shape[1]) {
    rope_.table.data = nullptr;  // the reference computes its own
  }

  // by: the op that is given the table. Nothing where the reference cannot say.
  std::vector<double> compute(as_op_id by, const Lane& exact, const as_threads* threads) {
    return by == AS_OP_ROPE_KV_INSERT ? turned_on(exact, threads) : turned_back(exact, threads);
  }

 private:
  std::int64_t tokens() const { return to_count(positions_.size()); }

  // (1, 0) turned by the angle is (cos, sin): halves of a head of the table's width.
  std::vector<double> turned_on(const Lane& exact, const as_threads* threads) {
    std::vector<double> in(to_size(tokens() * dims_)), out(in.size());
    for (std::int64_t i = 0; i < tokens() * dims_; ++i) {
      in[to_size(i)] = i % dims_ < dims_ / 2 ? 1 : 0;
    }
    std::vector<std::int64_t> nowhere(to_size(tokens()), -1);
    OpParams params;
    auto& p = params.init<as_rope_kv_insert_params>(AS_OP_ROPE_KV_INSERT);
    p.k = p.v = make_tensor(in.data(), {tokens(), 1, dims_});
    p.k_row = make_tensor(out.data(), {tokens(), 1, dims_});
    p.positions = make_tensor(positions_.data(), {tokens()});
    p.slots = make_tensor(nowhere.data(), {tokens()});
    p.rope = rope_;
    p.rope.table = no_tensor();
    p.k_cache.data = make_tensor(out.data(), {1, dims_});
    p.k_cache.record = AS_RECORD_BF16;
    p.k_cache.addressing = AS_LOGICAL;
    p.k_cache.width = static_cast<std::int32_t>(dims_);
    p.v_cache = p.k_cache;
    if (!call_op(exact.ops[AS_OP_ROPE_KV_INSERT], params.data(), host_call(threads))) return {};
    return out;
  }

  // (1, 0) turned back by the angle is (cos, -sin): pairs at the end of a head.
  std::vector<double> turned_back(const Lane& exact, const as_threads* threads) {
    std::vector<double> ones(to_size(tokens() * AS_HEAD_DIM)), turned(ones.size());
    for (std::size_t i = 0; i < ones.size(); i += 2) ones[i] = 1;
    OpParams params;
    auto& p = params.init<as_inverse_rope_params>(AS_OP_INVERSE_ROPE);
    p.o = make_tensor(ones.data(), {tokens(), 1, AS_HEAD_DIM});
    p.out = make_tensor(turned.data(), {tokens(), 1, AS_HEAD_DIM});
    p.positions = make_tensor(positions_.data(), {tokens()});
    p.rope = rope_;
    if (!call_op(exact.ops[AS_OP_INVERSE_ROPE], params.data(), host_call(threads))) return {};
    std::vector<double> rows(to_size(tokens() * dims_));
    for (std::int64_t t = 0; t < tokens(); ++t) {
      for (std::int64_t i = 0; i < dims_ / 2; ++i) {
        const double* pair = turned.data() + t * AS_HEAD_DIM + AS_NOPE_DIM + 2 * i;
        rows[to_size(t * dims_ + i)] = pair[0];
        rows[to_size(t * dims_ + dims_ / 2 + i)] = -pair[1];
      }
    }
    return rows;
  }

  as_rope rope_;
  std::vector<std::int64_t> positions_;
  std::int64_t dims_;
};

}  // namespace

std::optional<TapResult> check_rope(as_op_id by, const as_rope& rope, const StepMetadata& step,
                                    const Lane& exact, const as_threads* threads) {
  const std::vector<std::int64_t>& positions = step.positions;
  const std::int64_t n = to_count(positions.size()), dims = rope.table.shape[1], pairs = dims / 2;
  // A few at a time: references that compute elsewhere take these on the host, where they do not
  // wait behind others.
  constexpr std::int64_t kAtOnce = 64;
  std::vector<double> must;
  must.reserve(to_size(n * dims));
  for (std::int64_t first = 0; first < n; first += kAtOnce) {
    const auto begin = positions.begin() + first;
    const std::vector<std::int64_t> some(begin, begin + std::min(kAtOnce, n - first));
    const auto angles = AnglesOfReference(rope, some).compute(by, exact, threads);
    if (angles.empty()) return {};
    must.insert(must.end(), angles.begin(), angles.end());
  }
  std::int64_t beyond = 0, first = -1, first_pair = 0;
  for (std::int64_t t = 0; t < n; ++t) {
    const std::int64_t position = positions[to_size(t)];
    if (position < 0 || position >= rope.table.shape[0]) continue;
    const float* row = at<float>(rope.table, position);
    const double* own = must.data() + t * dims;
    // The table's angle is an fp32 product of an fp32 frequency: off by 2^-23 of itself at most.
    const double bound = 0x1p-22 * (1 + static_cast<double>(position));
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double off = std::fabs(static_cast<double>(row[i]) - own[i]) +
                         std::fabs(static_cast<double>(row[pairs + i]) - own[pairs + i]);
      if (off <= bound) continue;
      if (beyond++ == 0) {
        first = t;
        first_pair = i;
      }
    }
  }
  if (beyond == 0) return {};
  return wrong_result(
      by, std::string("rope") + kTableTap, n * pairs, beyond,
      fmt::format("{}, pair {}: cos and sin of the rotary table are not those of the "
                  "angle; {} pairs of this step's positions are off",
                  token_of(step, first), first_pair, beyond));
}

std::vector<RowHashes> hash_inputs(const OpParams& params, const as_threads* threads) {
  const as_op_info& info = params.info();
  std::vector<RowHashes> hashes(info.num_taps);
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_IN || tap.kind != AS_TAP_TENSOR) continue;
    const as_tensor& t = params.tensor(tap.offset);
    if (std::string_view(tap.name) != "weight" && present(t)) hashes[i] = hash_rows(t, threads);
  }
  return hashes;
}

std::vector<bool> huge_rows(const OpParams& params, const as_threads* threads) {
  std::vector<bool> huge;
  // Columns of scores beyond a length hold anything.
  if (as_op_role(params.op()) == AS_ROLE_SELECT) return huge;
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_IN || tap.kind != AS_TAP_TENSOR) continue;
    if (tap.axes[0] != 'T' && tap.axes[0] != 'N') continue;
    const as_tensor& t = params.tensor(tap.offset);
    if (!present(t) || t.device != 0 || (t.dtype != AS_BF16 && t.dtype != AS_F32)) continue;
    if (as_tensor_numel(&t) == 0) continue;
    std::vector<std::uint8_t> found(to_size(t.shape[0]));
    const auto grain = to_count(1 + 8 * kWordsOfPart / to_size(as_tensor_numel(&t) / t.shape[0]));
    cpu::parallel_for(threads, t.shape[0], grain, [&](std::int64_t row, std::int64_t end) {
      for (; row < end; ++row) found[to_size(row)] = has_huge(t, row) ? 1 : 0;
    });
    for (std::size_t row = 0; row < found.size(); ++row) {
      if (found[row] == 0) continue;
      huge.resize(found.size());
      huge[row] = true;
    }
  }
  return huge;
}

std::vector<TapResult> Unchanged::before(const OpParams& params,
                                         const std::vector<RowHashes>& hashes,
                                         const StepMetadata& step) {
  std::vector<TapResult> found;
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    const as_tensor& t = params.tensor(tap.offset);
    if (tap.direction != AS_TAP_IN || !looked_at(tap, t)) continue;
    const auto it = seen_.find(t.data);
    if (it == seen_.end() || it->second.bytes != tensor_bytes(t)) continue;
    RowHashes& was = it->second.rows;
    // Its writer may have seen it in another shape, as lists of the only group.
    const bool same_rows = hashes[i].size() == was.size();
    if (same_rows ? hashes[i] == was : sum_of(hashes[i]) == sum_of(was)) continue;
    std::int64_t beyond = same_rows ? 0 : 1, first = 0;
    for (std::size_t r = 0; same_rows && r < was.size(); ++r) {
      if (hashes[i][r] == was[r]) continue;
      if (beyond++ == 0) first = static_cast<std::int64_t>(r);
    }
    was = hashes[i];
    const bool of_tokens = same_rows && std::string_view(tap.axes).starts_with("T") &&
                           t.shape[0] == step.num_tokens_in_step();
    found.push_back(wrong_result(params.op(), std::string(tap.name) + kChangedTap, t.shape[0],
                                 beyond,
                                 fmt::format("{}{} is no longer what it was when {} had run: an op "
                                             "between them wrote to it",
                                             of_tokens ? token_of(step, first) + ": " : "",
                                             tap.name, as_op_find(it->second.by)->name)));
  }
  return found;
}

void Unchanged::wrote(const as_tensor& tensor, as_op_id by) {
  seen_[tensor.data] = {hash_rows(tensor, threads_), tensor_bytes(tensor), by};
}

void Unchanged::after(const OpParams& params, const std::vector<RowHashes>& hashes) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    const as_tensor& t = params.tensor(tap.offset);
    if (!looked_at(tap, t)) continue;
    const bool output = tap.direction == AS_TAP_OUT;
    const auto it = seen_.find(t.data);
    if (!output && it != seen_.end() && it->second.bytes == tensor_bytes(t)) continue;
    seen_[t.data] = {output ? hash_rows(t, threads_) : hashes[i], tensor_bytes(t), params.op()};
  }
}

}  // namespace attnscope
