// paged_attention: blocks of neighbouring tokens of a request, and of the query heads that share a
// KV head, over tiles of its rows. Scores and values are small matrix products, the softmax runs
// online over the tiles. Where queries are few, rows of codes are multiplied as they are.
//
// The context is cut at fixed rows into parts, each attended on its own and merged by LSE, so that
// a long one can be spread over threads; whether it is changes no byte. Tiles begin at multiples of
// their size. Under a mask each query goes over the runs of rows that it shows.
//
// Where the form says so, the context is cut at one more row (paged_forms.h). Of a cascade the rows
// before it are read once for blocks of tokens of any request; what comes of them is where each
// request's own blocks begin.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/cpu/kv_codes.h"
#include "kernels/cpu/mask_code.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/paged_checks.h"
#include "kernels/cpu/paged_forms.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/position_bias.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;
using I64 = std::int64_t;
using Params = as_paged_attention_params;

constexpr I64 kTile = 64;         // rows of K and V at once
constexpr I64 kQueries = 256;     // heads of tokens in a block at most
constexpr I64 kManyQueries = 16;  // are worth a transposed copy of the keys
constexpr I64 kPart = 4096;       // rows of a part where the caller does not say
constexpr I64 kDirectRun = 16;    // rows side by side in a page that are not worth a copy
constexpr float kInfinity = std::numeric_limits<float>::infinity();

I64 round_up(I64 n, I64 to) { return (n + to - 1) / to * to; }

// The caches that rows lie in, and the table of both.
struct KvSide {
  KvSide(const as_cache& keys, const as_tensor& k_scale, const as_cache& values,
         const as_tensor& v_scale, const as_tensor& blocks)
      : k(keys, k_scale), v(values, v_scale), table(blocks) {}
  KvRows k, v;
  as_tensor table;
};

// What is the same for all blocks.
struct Shape {
  explicit Shape(const Params& p)
      : size(p.q.shape[2]),
        size_v(p.o.shape[2]),
        stride_v(round_up(size_v, 16)),
        group(p.q.shape[1] / as_cache_heads(&p.k_cache)),
        kv_heads(as_cache_heads(&p.k_cache)),
        wide_tokens(p.wide_tokens),
        all(p.k_cache, p.k_scale, p.v_cache, p.v_scale, p.table),
        wide(wide_tokens > 0 ? KvSide(p.k_wide, no_tensor(), p.v_wide, no_tensor(), p.wide_table)
                             : all),
        paged(p.k_cache.addressing == AS_PAGED),
        bias(p.position_bias, p.bias_distance, p.causal) {}
  I64 size, size_v, stride_v, group, kv_heads, wide_tokens;
  KvSide all, wide;  // rows of positions below wide_tokens are those of `wide`
  bool paged;
  PositionBias bias;
};

// Tokens first .. first + count - 1 of one request, heads of one KV head.
struct Block {
  I64 first = 0, count = 0, request = 0;
  I64 heads_first = 0, heads = 0;  // within the group
  I64 begin = 0, end = 0;          // rows that any of them sees
  I64 part = kPart;                // rows of a part
  I64 cut = 0;                     // where parts are cut once more, 0 = nowhere
  bool common = false;             // tokens of any request, which see all of these rows
};

// The rows of a block's parts, which begin at multiples of their size, from row 0 or the cut on.
struct Part {
  I64 from = 0, to = 0;
};
std::vector<Part> parts_of(const Block& b) {
  std::vector<Part> parts;
  const auto add = [&](I64 origin, I64 from, I64 to) {
    if (from >= to) return;
    for (I64 at = origin + (from - origin) / b.part * b.part; at < to; at += b.part) {
      parts.push_back({at, std::min(at + b.part, to)});
    }
  };
  const bool cuts = b.cut > b.begin && b.cut < b.end;
  if (cuts) add(0, b.begin, b.cut);
  cuts ? add(b.cut, b.cut, b.end) : add(0, b.begin, b.end);
  return parts;
}

// Maximum, sum and weighted values of each query, over some rows.
class State {
 public:
  void reset(I64 queries, I64 stride) {
    max.assign(static_cast<std::size_t>(queries), -kInfinity);
    sum.assign(static_cast<std::size_t>(queries), 0.0);
    values.assign(static_cast<std::size_t>(queries * stride), 0.0f);
  }

  // This over its rows and other over other ones become one.
  void merge(const State& other, I64 stride) {
    const simd::Kernels& simd = simd::kernels();
    for (std::size_t i = 0; i < max.size(); ++i) {
      if (other.sum[i] == 0.0 && other.max[i] == -kInfinity) continue;
      const float best = std::max(max[i], other.max[i]);
      const double shift = best == -kInfinity ? 0.0 : static_cast<double>(best);
      const double mine = std::exp(static_cast<double>(max[i]) - shift);
      const double its = std::exp(static_cast<double>(other.max[i]) - shift);
      sum[i] = sum[i] * mine + other.sum[i] * its;
      max[i] = best;
      float* to = values.data() + static_cast<I64>(i) * stride;
      const float* from = other.values.data() + static_cast<I64>(i) * stride;
      const float weights[2] = {static_cast<float>(mine), static_cast<float>(its)};
      if (mine == 0.0) {
        std::fill(to, to + stride, 0.0f);
      } else if (weights[0] != 1.0f) {
        simd.scale(to, stride, weights[0]);
      }
      simd.gemm_add(weights + 1, 1, 1, from, stride, 1, to, stride, stride);
    }
  }

  std::vector<float> max;
  std::vector<double> sum;
  std::vector<float> values;
};

// The states of all tokens and heads over a common prefix.
class PrefixStates {
 public:
  PrefixStates(const Params& p, const Shape& s) : s_(s), heads_(p.q.shape[1]) {
    all_.reset(p.q.shape[0] * heads_, s.stride_v);
  }
  // Of a block's tokens, to and from.
  void put(const Block& b, I64 kv_head, const State& state) {
    each(b, kv_head, [&](I64 mine, I64 of_all) { copy(state, mine, all_, of_all); });
  }
  void get(const Block& b, I64 kv_head, State& state) const {
    state.reset(b.count * b.heads, s_.stride_v);
    each(b, kv_head, [&](I64 mine, I64 of_all) { copy(all_, of_all, state, mine); });
  }

 private:
  template <class Visit>
  void each(const Block& b, I64 kv_head, const Visit& visit) const {
    for (I64 i = 0; i < b.count * b.heads; ++i) {
      const I64 h = kv_head * s_.group + b.heads_first + i % b.heads;
      visit(i, (b.first + i / b.heads) * heads_ + h);
    }
  }
  void copy(const State& from, I64 i, State& to, I64 k) const {
    to.max[static_cast<std::size_t>(k)] = from.max[static_cast<std::size_t>(i)];
    to.sum[static_cast<std::size_t>(k)] = from.sum[static_cast<std::size_t>(i)];
    std::copy_n(from.values.data() + i * s_.stride_v, s_.stride_v,
                to.values.data() + k * s_.stride_v);
  }
  const Shape& s_;
  I64 heads_;
  State all_;
};

// One thread's scratch and the loops over rows.
class Worker {
 public:
  Worker(const Params& p, const Shape& shape) : p_(p), s_(shape) {
    const auto floats = [](std::vector<float>& v, I64 n) { v.resize(static_cast<std::size_t>(n)); };
    query_bits_.resize(static_cast<std::size_t>(kQueries * s_.size));
    key_bits_.resize(static_cast<std::size_t>(kTile * s_.size));
    floats(queries_, kQueries * s_.size);
    floats(keys_, kTile * s_.size);
    floats(columns_, kTile * s_.size);
    floats(values_, kTile * s_.stride_v);
    floats(scores_, kQueries * kTile);
    codes_.resize(static_cast<std::size_t>(kTile));
    floats(scales_, kTile);
    floats(zeros_, kTile);
  }

  // Rows from .. to - 1 of the block's request into a fresh state.
  void attend(const Block& b, I64 kv_head, I64 from, I64 to, State& state) {
    const I64 queries = b.count * b.heads;
    state.reset(queries, s_.stride_v);
    from = std::max(from, b.begin);
    to = std::min(to, b.end);
    if (from >= to) return;
    load_queries(b, kv_head);
    for (I64 first = from, end = from; first < to; first = end) {
      end = std::min(first / kTile * kTile + kTile, rows_alike(first, to));
      if (end < to) prefetch(b, kv_head, end, std::min(end + kTile, rows_alike(end, to)));
      side_ = &side(first);
      score(b, kv_head, first, end);
      load_values(b, kv_head, first, end);
      add(b, kv_head, first, end, state);
    }
  }

  void finish(const Block& b, I64 kv_head, const State& state) const {
    for (I64 i = 0; i < b.count * b.heads; ++i) {
      const auto k = static_cast<std::size_t>(i);
      const I64 t = b.first + i / b.heads;
      const I64 h = kv_head * s_.group + b.heads_first + i % b.heads;
      const SeenRows seen = seen_rows(p_, t, b.request);
      Bits* o = at<Bits>(p_.o, t, h);
      float* lse = at<float>(p_.lse, t, h);
      const bool hidden = present(p_.mask_code) && state.sum[k] == 0.0;
      if (seen.first >= seen.end || hidden) {
        std::fill(o, o + s_.size_v, Bits{0});
        *lse = -kInfinity;
        continue;
      }
      const double shift = state.max[k] == -kInfinity ? 0.0 : static_cast<double>(state.max[k]);
      double total = state.sum[k];
      if (present(p_.sinks)) {
        total += std::exp(static_cast<double>(*at<float>(p_.sinks, h)) - shift);
      }
      simd_.to_bf16(state.values.data() + i * s_.stride_v, static_cast<float>(1.0 / total),
                    s_.size_v, o);
      *lse = static_cast<float>(shift + std::log(state.sum[k]));
    }
  }

 private:
  const KvSide& side(I64 row) const { return row < s_.wide_tokens ? s_.wide : s_.all; }
  // How far rows from `first` on lie in the same caches.
  I64 rows_alike(I64 first, I64 to) const {
    return first < s_.wide_tokens ? std::min(to, s_.wide_tokens) : to;
  }

  void load_queries(const Block& b, I64 kv_head) {
    for (I64 i = 0; i < b.count * b.heads; ++i) {
      const I64 h = kv_head * s_.group + b.heads_first + i % b.heads;
      const Bits* from = at<Bits>(p_.q, b.first + i / b.heads, h);
      std::copy(from, from + s_.size, query_bits_.data() + i * s_.size);
      simd_.from_bf16(from, s_.size, queries_.data() + i * s_.size);
    }
  }

  // Where row n of the request lies, and how many follow side by side in its page.
  struct Place {
    I64 block = 0, in_page = 0, run = 1;
  };
  Place place(const KvRows& rows, const Block& b, I64 n) const {
    const as_tensor& table = side(n).table;
    if (!s_.paged) return {*at<std::int32_t>(table, b.request) + n, 0, 1};
    const I64 in_page = n % rows.rows;
    return {*at<std::int32_t>(table, b.request, n / rows.rows), in_page, rows.rows - in_page};
  }

  // Asks for rows that the next tile reads: a head's numbers of a row are a short run, far from
  // those of the next row, which no machine guesses.
  void prefetch(const Block& b, I64 kv_head, I64 first, I64 end) const {
    prefetch(side(first).k, s_.size, b, kv_head, first, end);
    prefetch(side(first).v, s_.size_v, b, kv_head, first, end);
  }
  void prefetch(const KvRows& rows, I64 size, const Block& b, I64 kv_head, I64 first,
                I64 end) const {
    constexpr I64 kLine = 64;
    const I64 step = rows.coded ? rows.codes.row : 2 * rows.pages.row;
    const I64 bytes = rows.coded ? size : 2 * size;
    const bool scales = rows.coded && rows.codes.beside == nullptr;
    for (I64 n = first, run = 0; n < end; n += run) {
      const Place at_row = place(rows, b, n);
      run = std::min(at_row.run, end - n);
      const unsigned char* head = rows.head(at_row.block, at_row.in_page, kv_head);
      for (I64 i = 0; i < run; ++i) {
        for (I64 at = 0; at < bytes; at += kLine) __builtin_prefetch(head + i * step + at, 0, 2);
        if (!scales) continue;
        const I64 scale = rows.codes.scale_at(at_row.block, at_row.in_page + i, kv_head);
        __builtin_prefetch(rows.codes.base + scale, 0, 2);
      }
    }
  }

  // A tile's rows of codes: where they lie, and their scales.
  simd::CodeRows code_rows(const KvRows& rows, const Block& b, I64 kv_head, I64 first, I64 end) {
    for (I64 n = first, run = 0; n < end; n += run) {
      const Place at_row = place(rows, b, n);
      run = std::min(at_row.run, end - n);
      for (I64 i = 0; i < run; ++i) {
        const HeadScale read = head_scale(rows.codes, at_row.block, at_row.in_page + i, kv_head);
        const auto k = static_cast<std::size_t>(n - first + i);
        codes_[k] = rows.head(at_row.block, at_row.in_page + i, kv_head);
        scales_[k] = read.scale;
        zeros_[k] = read.zero;
      }
    }
    return code_rows_from(0);
  }
  simd::CodeRows code_rows_from(I64 row) const {
    return {codes_.data() + row, scales_.data() + row, zeros_.data() + row};
  }
  const simd::CodeKernels& of_codes(const KvRows& rows) const {
    if (rows.codes.code == AS_CODE_I8) return simd_.i8;
    return rows.codes.code == AS_CODE_E5M2 ? simd_.e5m2 : simd_.e4m3;
  }

  // scores_[query][row - first] = q . k
  void score(const Block& b, I64 kv_head, I64 first, I64 end) {
    const I64 queries = b.count * b.heads, size = s_.size;
    if (queries >= kManyQueries) return score_many(b, kv_head, first, end);
    if (side_->k.coded) {
      return of_codes(side_->k).dot(queries_.data(), size, queries,
                                    code_rows(side_->k, b, kv_head, first, end), end - first, size,
                                    scores_.data(), kTile);
    }
    I64 copied = 0;  // rows at the end of the tile's keys so far
    const bool bf16 = side_->k.bf16();
    for (I64 n = first, run = 0; n < end; n += run) {
      const Place at_row = place(side_->k, b, n);
      run = std::min(at_row.run, end - n);
      const Bits* keys = bf16 ? side_->k.pages.at(at_row.block, at_row.in_page, kv_head) : nullptr;
      if (bf16 && run >= std::min(kDirectRun, end - first)) {
        simd_.gemm_bf16(query_bits_.data(), size, queries, keys, side_->k.pages.row, run, size,
                        scores_.data() + n - first, kTile);
        continue;
      }
      for (I64 i = 0; i < run; ++i) {
        if (bf16) {
          std::copy_n(keys + i * side_->k.pages.row, size, key_bits_.data() + (copied + i) * size);
        } else {
          side_->k.read(simd_, at_row.block, at_row.in_page + i, kv_head, size,
                        keys_.data() + (copied + i) * size);
        }
      }
      copied += run;
      // Rows that follow may still join these.
      const bool last = n + run == end;
      if (!last && next_is_copied(b, n + run, end, end - first)) continue;
      float* to = scores_.data() + n + run - copied - first;
      if (!bf16) {
        simd_.gemm_f32(queries_.data(), size, queries, keys_.data(), size, copied, size, to, kTile);
      } else {
        simd_.gemm_bf16(query_bits_.data(), size, queries, key_bits_.data(), size, copied, size, to,
                        kTile);
      }
      copied = 0;
    }
  }
  // By the keys' columns: no sum over the lanes of a vector for each score.
  void score_many(const Block& b, I64 kv_head, I64 first, I64 end) {
    const I64 queries = b.count * b.heads, size = s_.size, rows = end - first;
    for (I64 n = first, run = 0; n < end; n += run) {
      const Place at_row = place(side_->k, b, n);
      run = std::min(at_row.run, end - n);
      for (I64 i = 0; i < run; ++i) {
        side_->k.read(simd_, at_row.block, at_row.in_page + i, kv_head, size,
                      keys_.data() + (n - first + i) * size);
      }
    }
    constexpr I64 kLanes = 16;
    const I64 wide = round_up(rows, kLanes);  // rows behind the last one: of an earlier tile
    for (I64 i = 0; i < wide; i += kLanes) {
      for (I64 d = 0; d < size; ++d) {
        float* to = columns_.data() + d * kTile + i;
        for (I64 lane = 0; lane < kLanes; ++lane) to[lane] = keys_[at_key(i + lane, d)];
      }
    }
    for (I64 i = 0; i < queries; ++i) std::fill_n(scores_.data() + i * kTile, wide, 0.0f);
    simd_.gemm_add(queries_.data(), size, queries, columns_.data(), kTile, size, scores_.data(),
                   kTile, wide);
  }
  std::size_t at_key(I64 row, I64 d) const { return static_cast<std::size_t>(row * s_.size + d); }

  bool next_is_copied(const Block& b, I64 n, I64 end, I64 all) const {
    if (!side_->k.bf16()) return true;
    return std::min(place(side_->k, b, n).run, end - n) < std::min(kDirectRun, all);
  }

  void load_values(const Block& b, I64 kv_head, I64 first, I64 end) {
    codes_as_they_are_ = side_->v.coded && b.count * b.heads < kManyQueries;
    if (codes_as_they_are_) {
      code_rows(side_->v, b, kv_head, first, end);
      return;
    }
    for (I64 n = first, run = 0; n < end; n += run) {
      const Place at_row = place(side_->v, b, n);
      run = std::min(at_row.run, end - n);
      for (I64 i = 0; i < run; ++i) {
        side_->v.read(simd_, at_row.block, at_row.in_page + i, kv_head, s_.size_v,
                      values_.data() + (n - first + i) * s_.stride_v);
      }
    }
  }

  // Values of n rows of the tile, from row `at` of it on, with their weights, to those of queries.
  void weigh(float* weights, I64 queries, I64 at, I64 n, I64 query, State& state) {
    float* to = state.values.data() + query * s_.stride_v;
    if (codes_as_they_are_) {
      of_codes(side_->v).add(weights, kTile, queries, code_rows_from(at), n, to, s_.stride_v,
                             s_.size_v);
      return;
    }
    simd_.gemm_add(weights, kTile, queries, values_.data() + at * s_.stride_v, s_.stride_v, n, to,
                   s_.stride_v, s_.stride_v);
  }

  // The first row from `from` on, before `to`, that the mask shows query i, or hides; `to`: none.
  I64 next(const Block& b, I64 kv_head, I64 i, I64 from, I64 to, bool shown) const {
    const I64 h = kv_head * s_.group + b.heads_first + i % b.heads;
    const MaskOrigin place = mask_origin(p_, b.first + i / b.heads, b.request);
    while (from < to &&
           mask_shows(p_.mask_code, {place.query, place.row + from, h, b.request}) != shown) {
      ++from;
    }
    return from;
  }

  // The same under a mask.
  void add_shown(const Block& b, I64 kv_head, I64 first, I64 end, State& state) {
    for (I64 i = 0; i < b.count * b.heads; ++i) {
      const SeenRows seen = seen_rows(p_, b.first + i / b.heads, b.request);
      const I64 to = std::min(end, seen.end);
      for (I64 from = std::max(first, seen.first); from < to;) {
        from = next(b, kv_head, i, from, to, true);
        const I64 stop = next(b, kv_head, i, from, to, false);
        if (from < stop) {
          float* scores = scores_.data() + i * kTile + from - first;
          soften(b, kv_head, from, scores, stop - from, state, i);
          weigh(scores, 1, from - first, stop - from, i, state);
        }
        from = stop;
      }
    }
  }

  // The tile's rows into the state: all queries at once where they see the same rows of it, else
  // token by token.
  void add(const Block& b, I64 kv_head, I64 first, I64 end, State& state) {
    if (present(p_.mask_code)) return add_shown(b, kv_head, first, end, state);
    bool alike = true;
    for (I64 t = 0; t < b.count && alike && !b.common; ++t) {
      const SeenRows seen = seen_rows(p_, b.first + t, b.request);
      alike = seen.first <= first && seen.end >= end;
    }
    for (I64 t = 0; t < (alike ? 1 : b.count); ++t) {
      const I64 query = t * b.heads, queries = alike ? b.count * b.heads : b.heads;
      const SeenRows seen = alike ? SeenRows{first, end} : seen_rows(p_, b.first + t, b.request);
      const I64 from = std::max(first, seen.first);
      const I64 to = std::min(end, seen.end);
      if (from >= to) continue;
      for (I64 i = query; i < query + queries; ++i) {
        soften(b, kv_head, from, scores_.data() + i * kTile + from - first, to - from, state, i);
      }
      weigh(scores_.data() + query * kTile + from - first, queries, from - first, to - from, query,
            state);
    }
  }

  // Scores of one query with rows first .. first + n - 1 become weights relative to its maximum so
  // far.
  void soften(const Block& b, I64 kv_head, I64 first, float* scores, I64 n, State& state,
              I64 query) {
    const auto k = static_cast<std::size_t>(query);
    float best = simd_.scale_max(scores, n, static_cast<float>(p_.scale));
    if (p_.soft_cap > 0) simd_.soft_cap(scores, n, static_cast<float>(p_.soft_cap));
    if (present(p_.alibi_slopes)) {
      const I64 h = kv_head * s_.group + b.heads_first + query % b.heads;
      const I64 position = *at<std::int64_t>(p_.positions, b.first + query / b.heads);
      const float slope = *at<float>(p_.alibi_slopes, h);
      for (I64 i = 0; i < n; ++i) {
        scores[i] -= slope * static_cast<float>(std::abs(position - first - i));
      }
    }
    if (s_.bias) {
      const I64 h = kv_head * s_.group + b.heads_first + query % b.heads;
      s_.bias.add(scores, n, h, first - *at<std::int64_t>(p_.positions, b.first + query / b.heads));
    }
    const bool scored = present(p_.score_code);
    if (scored) {
      const I64 h = kv_head * s_.group + b.heads_first + query % b.heads;
      const I64 token = b.first + query / b.heads;
      // Tokens of one block may be of several requests, where rows are common to them.
      const I64 request = *at<std::int32_t>(p_.token_to_req, token);
      const MaskOrigin place = mask_origin(p_, token, request);
      for (I64 i = 0; i < n; ++i) {
        scores[i] = static_cast<float>(run_mask_code(
            p_.score_code, {place.query, place.row + first + i, h, request}, double{scores[i]}));
      }
    }
    if (p_.soft_cap > 0 || present(p_.alibi_slopes) || s_.bias || scored) {
      best = simd_.scale_max(scores, n, 1.0f);
    }
    best = std::max(state.max[k], best);
    if (best > state.max[k]) {
      const double old = std::exp(static_cast<double>(state.max[k]) - static_cast<double>(best));
      state.sum[k] *= old;
      float* values = state.values.data() + query * s_.stride_v;
      if (old > 0.0) {
        simd_.scale(values, s_.stride_v, static_cast<float>(old));
      } else {
        std::fill_n(values, s_.stride_v, 0.0f);
      }
      state.max[k] = best;
    }
    const float shift = best == -kInfinity ? 0.0f : best;
    state.sum[k] += static_cast<double>(simd_.exp_sum(scores, n, shift));
  }

  const Params& p_;
  const Shape& s_;
  const KvSide* side_ = nullptr;  // of the tile's rows
  const simd::Kernels& simd_ = simd::kernels();
  std::vector<Bits> query_bits_, key_bits_;
  std::vector<float> queries_, keys_, columns_, values_, scores_;
  std::vector<const unsigned char*> codes_;  // rows of the tile's keys, then of its values
  std::vector<float> scales_, zeros_;        // theirs
  bool codes_as_they_are_ = false;           // its values are not widened before they are weighed
};

// The block for each run of query heads of a KV head that fits.
void add_blocks(Block b, const Shape& s, std::vector<Block>& blocks) {
  const I64 heads = std::min(s.group, kQueries);
  for (I64 first = 0; first < s.group; first += heads) {
    b.heads_first = first;
    b.heads = std::min(heads, s.group - first);
    blocks.push_back(b);
  }
}
I64 tokens_of_block(const Shape& s) {
  return std::max<I64>(1, kQueries / std::min(s.group, kQueries));
}

// The blocks of one KV head, the same for all. Padding is written at once.
std::vector<Block> blocks_of(const Params& p, const Shape& s, const ContextCuts& cuts) {
  std::vector<Block> blocks;
  const I64 tokens = p.q.shape[0];
  const I64 most = tokens_of_block(s);
  for (I64 t = 0; t < tokens;) {
    Block b;
    b.first = t;
    b.request = *at<std::int32_t>(p.token_to_req, t);
    b.end = 0;
    b.begin = std::numeric_limits<I64>::max();
    for (; t < tokens && b.count < most && *at<std::int32_t>(p.token_to_req, t) == b.request;
         ++t, ++b.count) {
      if (b.request < 0) continue;
      const SeenRows seen = seen_rows(p, t, b.request);
      if (seen.first >= seen.end) continue;
      // Rows that nobody sees need not be there.
      if (b.begin < b.end && (seen.first > b.end || seen.end < b.begin)) break;
      b.begin = std::min(b.begin, seen.first);
      b.end = std::max(b.end, seen.end);
    }
    if (b.request < 0) {
      for (I64 i = b.first; i < t; ++i) {
        for (I64 h = 0; h < p.q.shape[1]; ++h) {
          std::fill_n(at<Bits>(p.o, i, h), s.size_v, Bits{0});
          *at<float>(p.lse, i, h) = -kInfinity;
        }
      }
      continue;
    }
    if (p.num_splits > 0) {
      const I64 rows = std::max<I64>(1, *at<std::int32_t>(p.seq_lens, b.request));
      b.part = round_up((rows + p.num_splits - 1) / p.num_splits, kTile);
    }
    b.cut = cuts.rows[static_cast<std::size_t>(b.request)];
    if (cuts.shared >= 0 && b.begin < b.end) b.begin = std::max(b.begin, b.cut);
    add_blocks(b, s, blocks);
  }
  return blocks;
}

// Blocks of tokens side by side, of any request, over the rows before a cascade's cut.
std::vector<Block> common_blocks(const Params& p, const Shape& s, const ContextCuts& cuts) {
  std::vector<Block> blocks;
  const I64 tokens = p.q.shape[0], most = tokens_of_block(s);
  const auto padding = [&](I64 t) { return *at<std::int32_t>(p.token_to_req, t) < 0; };
  for (I64 t = 0; t < tokens;) {
    if (padding(t)) {
      ++t;
      continue;
    }
    Block b;
    b.first = t;
    b.request = cuts.shared;
    b.end = cuts.rows[static_cast<std::size_t>(cuts.shared)];
    b.common = true;
    for (; t < tokens && b.count < most && !padding(t); ++t) ++b.count;
    add_blocks(b, s, blocks);
  }
  return blocks;
}

// The prefix, once.
PrefixStates attend_common(const Params& p, const Shape& s, const ContextCuts& cuts,
                           const as_call* call) {
  const std::vector<Block> blocks = common_blocks(p, s, cuts);
  PrefixStates prefix(p, s);
  parallel_for(call, static_cast<I64>(blocks.size()) * s.kv_heads, 1, [&](I64 begin, I64 end) {
    Worker worker(p, s);
    State all, part;
    for (I64 item = begin; item < end; ++item) {
      const Block& b = blocks[static_cast<std::size_t>(item / s.kv_heads)];
      const I64 kv_head = item % s.kv_heads;
      all.reset(b.count * b.heads, s.stride_v);
      for (const Part& rows : parts_of(b)) {
        worker.attend(b, kv_head, rows.from, rows.to, part);
        all.merge(part, s.stride_v);
      }
      prefix.put(b, kv_head, all);
    }
  });
  return prefix;
}

// Each block as one item, its parts one after the other. prefix: where they begin; nullptr = with
// nothing.
void attend_blocks(const Params& p, const Shape& s, const std::vector<Block>& blocks,
                   const PrefixStates* prefix, const as_call* call) {
  const I64 items = static_cast<I64>(blocks.size()) * s.kv_heads;
  parallel_for(call, items, 1, [&](I64 begin, I64 end) {
    Worker worker(p, s);
    State all, part;
    for (I64 item = begin; item < end; ++item) {
      const Block& b = blocks[static_cast<std::size_t>(item / s.kv_heads)];
      const I64 kv_head = item % s.kv_heads;
      const std::vector<Part> parts = parts_of(b);
      std::size_t next = 0;
      if (prefix != nullptr) {
        prefix->get(b, kv_head, all);
      } else if (parts.empty()) {
        all.reset(b.count * b.heads, s.stride_v);
      } else {
        worker.attend(b, kv_head, parts[0].from, parts[0].to, all);
        next = 1;
      }
      for (; next < parts.size(); ++next) {
        worker.attend(b, kv_head, parts[next].from, parts[next].to, part);
        all.merge(part, s.stride_v);
      }
      worker.finish(b, kv_head, all);
    }
  });
}

// Each part as an item, then the merges.
void attend_parts(const Params& p, const Shape& s, const std::vector<Block>& blocks,
                  const PrefixStates* prefix, const as_call* call) {
  struct Item {
    std::size_t block;
    I64 kv_head;
    Part rows;
  };
  std::vector<Item> items;
  std::vector<std::size_t> first_item;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (I64 g = 0; g < s.kv_heads; ++g) {
      first_item.push_back(items.size());
      std::vector<Part> parts = parts_of(blocks[b]);
      if (parts.empty()) parts.emplace_back();
      for (const Part& rows : parts) items.push_back({b, g, rows});
    }
  }
  first_item.push_back(items.size());
  std::vector<State> states(items.size());
  parallel_for(call, static_cast<I64>(items.size()), 1, [&](I64 begin, I64 end) {
    Worker worker(p, s);
    for (I64 i = begin; i < end; ++i) {
      const Item& item = items[static_cast<std::size_t>(i)];
      const Block& b = blocks[item.block];
      worker.attend(b, item.kv_head, item.rows.from, item.rows.to,
                    states[static_cast<std::size_t>(i)]);
    }
  });
  const Worker worker(p, s);
  for (std::size_t i = 0; i + 1 < first_item.size(); ++i) {
    const Item& item = items[first_item[i]];
    State before;
    if (prefix != nullptr) prefix->get(blocks[item.block], item.kv_head, before);
    State& all = prefix != nullptr ? before : states[first_item[i]];
    for (std::size_t k = first_item[i] + (prefix != nullptr ? 0 : 1); k < first_item[i + 1]; ++k) {
      all.merge(states[k], s.stride_v);
    }
    worker.finish(blocks[item.block], item.kv_head, all);
  }
}

}  // namespace

void paged_attention(const Params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  if (p.q.shape[0] == 0 || p.q.shape[1] == 0) return;
  const Shape shape(p);
  const ContextCuts cuts = context_cuts(p);
  std::optional<PrefixStates> prefix;
  if (cuts.shared >= 0) prefix.emplace(attend_common(p, shape, cuts, call));
  const PrefixStates* begin = prefix ? &*prefix : nullptr;
  const std::vector<Block> blocks = blocks_of(p, shape, cuts);
  const I64 threads = call != nullptr && call->threads != nullptr ? call->threads->num_threads : 1;
  const bool few = static_cast<I64>(blocks.size()) * shape.kv_heads < 4 * threads;
  few&& threads > 1 ? attend_parts(p, shape, blocks, begin, call)
                    : attend_blocks(p, shape, blocks, begin, call);
}

}  // namespace attnscope::cpu
