#include "kernels/cpu/prefill_workspace.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/helper_ops.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using AttentionParams = as_sparse_attention_params;

// Rows of a cache that some tokens list, each once, in the order in which they are first listed.
class ListedRows {
 public:
  ListedRows(const as_cache& cache, const as_tensor& lists, const as_tensor& lens)
      : cache_(cache), lists_(lists), lens_(lens) {}

  void add(std::int64_t first, std::int64_t tokens) {
    for (std::int64_t t = first; t < first + tokens; ++t) {
      each(t, [&](std::int32_t slot) {
        if (place_.try_emplace(slot, static_cast<std::int32_t>(slots_.size())).second) {
          slots_.push_back(slot);
        }
      });
    }
  }
  std::int64_t size() const { return static_cast<std::int64_t>(slots_.size()); }
  // A token's list, as rows of a workspace from `base` on.
  void list(std::int64_t t, std::int32_t base, std::vector<std::int32_t>& out) const {
    each(t, [&](std::int32_t slot) { out.push_back(base + place_.at(slot)); });
  }
  void store(std::uint16_t* rows) const {
    std::vector<float> values(AS_HEAD_DIM);
    for (const std::int32_t slot : slots_) {
      const as_row_address row = as_cache_row(&cache_, slot);
      decode_row(cache_.record, AS_HEAD_DIM, row.payload, row.scales, values.data());
      rows = std::transform(values.begin(), values.end(), rows, float_to_bf16);
    }
  }

 private:
  template <class Visit>
  void each(std::int64_t t, const Visit& visit) const {
    const std::int32_t* list = at<std::int32_t>(lists_, t);
    for (std::int32_t k = 0; k < *at<std::int32_t>(lens_, t); ++k) {
      if (list[k] >= 0) visit(list[k]);
    }
  }

  const as_cache& cache_;
  const as_tensor &lists_, &lens_;
  std::unordered_map<std::int32_t, std::int32_t> place_;
  std::vector<std::int32_t> slots_;
};

// Of one part: what it needs of both caches.
struct PartRows {
  explicit PartRows(const AttentionParams& p)
      : window(p.cache, p.indices, p.topk_length),
        entries(p.extra_cache, p.extra_indices, p.extra_topk_length) {}
  ListedRows window, entries;
};

void gather_chunk(const AttentionParams& p, PrefillWorkspace& w) {
  const bool extra = p.extra_cache.record != AS_RECORD_NONE;
  std::vector<PartRows> rows;
  std::int64_t places = 0, windows = 0;
  for (const PrefillWorkspace::Part& part : w.parts) {
    PartRows& of = rows.emplace_back(p);
    of.window.add(part.first, part.tokens);
    if (extra) of.entries.add(part.first, part.tokens);
    w.compressed = std::max(w.compressed, of.entries.size());
    windows = std::max(windows, of.window.size());
    places = std::max(places, part.place + 1);
  }
  w.width = w.compressed + windows;
  w.columns = p.indices.shape[1] + (extra ? p.extra_indices.shape[1] : 0);
  w.rows.resize(static_cast<std::size_t>(places * w.width * AS_HEAD_DIM));
  for (std::size_t i = 0; i < w.parts.size(); ++i) {
    const PrefillWorkspace::Part& part = w.parts[i];
    const std::int64_t base = part.place * w.width;
    rows[i].entries.store(w.rows.data() + base * AS_HEAD_DIM);
    rows[i].window.store(w.rows.data() + (base + w.compressed) * AS_HEAD_DIM);
    for (std::int64_t t = part.first; t < part.first + part.tokens; ++t) {
      std::vector<std::int32_t> list;
      if (extra) rows[i].entries.list(t, static_cast<std::int32_t>(base), list);
      w.compressed_lens.push_back(static_cast<std::int32_t>(list.size()));
      rows[i].window.list(t, static_cast<std::int32_t>(base + w.compressed), list);
      w.lens.push_back(static_cast<std::int32_t>(list.size()));
      list.resize(static_cast<std::size_t>(w.columns), -1);
      w.indices.insert(w.indices.end(), list.begin(), list.end());
    }
  }
}

as_tensor tokens_of(as_tensor t, std::int64_t first, std::int64_t n) {
  if (!present(t)) return t;
  t.data = at<unsigned char>(t) + first * t.stride[0] * as_dtype_size(t.dtype);
  t.shape[0] = n;
  return t;
}

}  // namespace

bool check_prefill(const as_tensor& prefill, std::int64_t tokens, bool values, Check& check) {
  if (!check.optional("prefill", prefill, AS_I32, {tokens, 2})) return false;
  std::set<std::pair<std::int32_t, std::int32_t>> ended;
  std::pair<std::int32_t, std::int32_t> last = {-1, -1};
  for (std::int64_t t = 0; values && present(prefill) && t < tokens; ++t) {
    const std::pair now = {*at<std::int32_t>(prefill, t, 0), *at<std::int32_t>(prefill, t, 1)};
    const auto [chunk, part] = now;
    if (chunk >= 0 && (part < 0 || part >= tokens)) {
      return check.fail("prefill[%lld] is part %d of chunk %d; parts are 0 to %lld",
                        static_cast<long long>(t), part, chunk, static_cast<long long>(tokens - 1));
    }
    if (now != last && chunk >= 0 && !ended.insert(now).second) {
      return check.fail(
          "prefill[%lld] is part %d of chunk %d, which other tokens have ended; tokens of a part "
          "stand side by side",
          static_cast<long long>(t), part, chunk);
    }
    last = now;
  }
  return true;
}

as_sparse_attention_params of_tokens(const AttentionParams& p, std::int64_t first, std::int64_t n) {
  AttentionParams some = p;
  for (as_tensor* t : {&some.q, &some.indices, &some.topk_length, &some.extra_indices,
                       &some.extra_topk_length, &some.o, &some.lse}) {
    *t = tokens_of(*t, first, n);
  }
  some.prefill = no_tensor();
  return some;
}

std::vector<PrefillWorkspace> gather_prefill(const AttentionParams& p) {
  std::map<std::int32_t, PrefillWorkspace> chunks;
  std::int32_t last_chunk = -1, last_part = -1;
  for (std::int64_t t = 0; t < p.prefill.shape[0]; ++t) {
    const std::int32_t chunk = *at<std::int32_t>(p.prefill, t, 0);
    const std::int32_t part = *at<std::int32_t>(p.prefill, t, 1);
    if (chunk >= 0) {
      auto& parts = chunks[chunk].parts;
      if (chunk != last_chunk || part != last_part) parts.push_back({t, 0, part});
      ++parts.back().tokens;
    }
    last_chunk = chunk;
    last_part = part;
  }
  std::vector<PrefillWorkspace> out;
  for (auto& [number, chunk] : chunks) {
    gather_chunk(p, chunk);
    out.push_back(std::move(chunk));
  }
  return out;
}

void attend_prefill(const AttentionParams& p, const PrefillWorkspace& w, const as_call* call) {
  std::int64_t row = 0;  // of the chunk's lists
  for (const PrefillWorkspace::Part& part : w.parts) {
    const AttentionParams some = of_tokens(p, part.first, part.tokens);
    as_workspace_attention_params over{};
    over.q = some.q;
    const auto rows = static_cast<std::int64_t>(w.rows.size()) / AS_HEAD_DIM;
    over.rows = make_tensor(const_cast<std::uint16_t*>(w.rows.data()), AS_BF16,
                            {rows, std::int64_t{AS_HEAD_DIM}});
    over.indices = make_tensor(w.indices.data() + row * w.columns, {part.tokens, w.columns});
    over.topk_length = make_tensor(w.lens.data() + row, {part.tokens});
    over.sinks = p.sinks;
    over.o = some.o;
    over.lse = some.lse;
    over.scale = p.scale;
    Check unused(AS_OP_WORKSPACE_ATTENTION, nullptr);
    workspace_attention(over, call, unused);
    row += part.tokens;
  }
}

}  // namespace attnscope::cpu
