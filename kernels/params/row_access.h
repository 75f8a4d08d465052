// Walks the cache rows that one call of an op reads or writes, as the table of cache_access.h says.
//
//   RowAccess::for_each(params, *RowAccess::find(AS_OP_SPARSE_ATTENTION, offset),
//                       [&](const RowVisit& v) { slots.push_back(v.slot); });
//
// Nothing is left out because of where a slot lies: a caller says itself what it does with slots
// outside of the cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/params/cache_access.h"
#include "kernels/params/op_table.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

struct RowVisit {
  std::int64_t token;  // that names the row
  std::int64_t place;  // list: column; table and window: row of the request; slots: 0
  std::int64_t slot;   // a row number in a logical cache
};

class RowAccess {
 public:
  // Slot of a row behind the last column of a block table.
  static constexpr std::int64_t kBeyondTable = -1;

  // Of an op, in the order of its taps.
  static std::span<const as_cache_access> of(std::int32_t op) {
    std::uint32_t count = 0;
    const as_cache_access* accesses = as_cache_accesses(op, &count);
    return {accesses, count};
  }

  // That of the cache at this offset of the op's params struct; nullptr = none.
  static const as_cache_access* find(std::int32_t op, std::size_t cache) {
    for (const as_cache_access& access : of(op)) {
      if (access.cache == cache) return &access;
    }
    return nullptr;
  }

  // Calls visit(RowVisit), token by token.
  //   slots   the slot of every token that has one
  //   list    what the list holds within its length and its width, without negative entries
  //   table   row by row of the table, once for all tokens of a request: the rows that the one
  //           which sees most of them sees (of equals the last one)
  //   window  the rows of every token that sees some; those at positions below 0 are not there
  //   context row by row, once for neighbouring tokens of a request whose rows overlap or meet, by
  //           the one that sees the last of them
  // Where a table ends before the rows do, the first row behind it is visited with kBeyondTable and
  // the rest left out. Tokens of no row of the table see nothing. A table of negative ids gives
  // negative slots.
  template <class Visit>
  static void for_each(const void* params, const as_cache_access& access, const Visit& visit) {
    const RowAccess rows(params, access);
    if (!rows.complete()) return;
    switch (access.by) {
      case AS_BY_SLOTS:
        return rows.slots(visit);
      case AS_BY_LIST:
        return rows.list(visit);
      default:
        return rows.ranges(
            [&](std::int64_t token, std::int64_t request, std::int64_t begin, std::int64_t end) {
              rows.through_table(token, request, begin, end, visit);
            });
    }
  }

  // Whether rows are found through a block table.
  static bool by_table(const as_cache_access& access) {
    return access.by == AS_BY_TABLE || access.by == AS_BY_WINDOW || access.by == AS_BY_CONTEXT;
  }

  // By row of the block table: the end of the rows that the call sees through it, 0 = none, also
  // where the table ends before them.
  static std::vector<std::int64_t> ends(const void* params, const as_cache_access& access) {
    const RowAccess rows(params, access);
    std::vector<std::int64_t> out(static_cast<std::size_t>(rows.tensor(access.rows).shape[0]), 0);
    if (!rows.complete()) return out;
    rows.ranges([&](std::int64_t, std::int64_t request, std::int64_t, std::int64_t end) {
      std::int64_t& last = out[static_cast<std::size_t>(request)];
      last = std::max(last, end);
    });
    return out;
  }

 private:
  RowAccess(const void* params, const as_cache_access& access)
      : params_(static_cast<const char*>(params)), access_(access) {}

  const as_tensor& tensor(std::size_t offset) const {
    return *reinterpret_cast<const as_tensor*>(params_ + offset);
  }
  std::int32_t number(std::size_t offset) const {
    return *reinterpret_cast<const std::int32_t*>(params_ + offset);
  }
  const as_cache& cache() const {
    return *reinterpret_cast<const as_cache*>(params_ + access_.cache);
  }

  // Whether the call touches rows and has all that names them.
  bool complete() const {
    if (access_.unless != 0 && number(access_.unless) != 0) return false;
    for (const std::size_t offset :
         {access_.rows, access_.lens, access_.token_to_req, access_.positions, access_.only}) {
      if (offset != 0 && !present(tensor(offset))) return false;
    }
    return !by_table(access_) || cache().addressing == AS_LOGICAL || cache().rows_per_block > 0;
  }

  template <class Visit>
  void slots(const Visit& visit) const {
    const as_tensor& slots = tensor(access_.rows);
    for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
      const std::int64_t slot = *at<std::int64_t>(slots, t);
      if (slot >= 0) visit(RowVisit{t, 0, slot});
    }
  }

  template <class Visit>
  void list(const Visit& visit) const {
    const as_tensor &slots = tensor(access_.rows), &lens = tensor(access_.lens);
    const std::int64_t tokens = std::min(slots.shape[0], lens.shape[0]);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t len = std::min<std::int64_t>(slots.shape[1], *at<std::int32_t>(lens, t));
      for (std::int64_t k = 0; k < len; ++k) {
        const std::int32_t slot = *at<std::int32_t>(slots, t, k);
        if (slot >= 0) visit(RowVisit{t, k, slot});
      }
    }
  }

  // Calls visit(token, row of the table, begin, end) for the rows that the call sees through it.
  template <class Visit>
  void ranges(const Visit& visit) const {
    switch (access_.by) {
      case AS_BY_TABLE:
        return whole(visit);
      case AS_BY_WINDOW:
        return windows(visit);
      default:
        return contexts(visit);
    }
  }

  template <class Visit>
  void whole(const Visit& visit) const {
    struct Seen {
      std::int64_t rows = 0, token = 0;
    };
    const as_tensor &lens = tensor(access_.lens), &token_to_req = tensor(access_.token_to_req);
    std::vector<Seen> most(static_cast<std::size_t>(tensor(access_.rows).shape[0]));
    const std::int64_t tokens = std::min(lens.shape[0], token_to_req.shape[0]);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t request = *at<std::int32_t>(token_to_req, t);
      if (request < 0 || request >= static_cast<std::int64_t>(most.size())) continue;
      Seen& seen = most[static_cast<std::size_t>(request)];
      if (*at<std::int32_t>(lens, t) >= seen.rows) seen = {*at<std::int32_t>(lens, t), t};
    }
    for (std::size_t r = 0; r < most.size(); ++r) {
      visit(most[r].token, static_cast<std::int64_t>(r), std::int64_t{0}, most[r].rows);
    }
  }

  template <class Visit>
  void windows(const Visit& visit) const {
    const as_tensor &positions = tensor(access_.positions),
                    &requests = tensor(access_.token_to_req);
    const std::int64_t window = number(access_.window);
    const std::int64_t span = window == access_.twice_at ? 2 * window : window;
    std::int64_t tokens = std::min(positions.shape[0], requests.shape[0]);
    if (access_.only != 0) tokens = std::min(tokens, tensor(access_.only).shape[0]);
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (access_.only != 0 && *at<std::int64_t>(tensor(access_.only), t) < 0) continue;
      const std::int64_t request = *at<std::int32_t>(requests, t);
      if (request < 0 || request >= tensor(access_.rows).shape[0]) continue;
      const std::int64_t end = *at<std::int64_t>(positions, t) + 1;
      visit(t, request, std::max<std::int64_t>(0, end - span), end);
    }
  }

  template <class Visit>
  void contexts(const Visit& visit) const {
    const as_tensor &positions = tensor(access_.positions),
                    &requests = tensor(access_.token_to_req);
    const as_tensor& lens = tensor(access_.lens);
    const std::int64_t window = access_.window != 0 ? number(access_.window) : 0;
    const std::int64_t chunk = access_.chunk != 0 ? number(access_.chunk) : 0;
    const bool causal = access_.causal == 0 || number(access_.causal) != 0;
    const bool later = access_.first != 0 && present(tensor(access_.first));
    const as_tensor* from = later ? &tensor(access_.first) : nullptr;
    const std::int64_t tokens = std::min(positions.shape[0], requests.shape[0]);
    std::int64_t request = -1, token = 0, begin = 0, end = 0;
    const auto done = [&] {
      if (request >= 0 && begin < end) visit(token, request, begin, end);
    };
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t r = *at<std::int32_t>(requests, t), p = *at<std::int64_t>(positions, t);
      if (r < 0 || r >= std::min(tensor(access_.rows).shape[0], lens.shape[0])) continue;
      std::int64_t last = *at<std::int32_t>(lens, r);
      if (causal) last = std::min(last, p + 1);
      std::int64_t first = window > 0 ? std::max<std::int64_t>(0, p - window + 1) : 0;
      if (chunk > 0) first = std::max(first, p / chunk * chunk);
      if (from != nullptr) first = std::max<std::int64_t>(first, *at<std::int32_t>(*from, r));
      if (access_.from != 0) first = std::max<std::int64_t>(first, number(access_.from));
      if (access_.until != 0) last = std::min<std::int64_t>(last, number(access_.until));
      if (first >= last) continue;
      if (r != request || first > end || last < begin) {
        done();
        request = r, begin = first, end = last, token = t;
        continue;
      }
      begin = std::min(begin, first);
      if (last >= end) end = last, token = t;
    }
    done();
  }

  // Rows begin .. end - 1 of a request.
  template <class Visit>
  void through_table(std::int64_t token, std::int64_t request, std::int64_t begin, std::int64_t end,
                     const Visit& visit) const {
    const as_tensor& table = tensor(access_.rows);
    const as_cache& paged = cache();
    for (std::int64_t p = begin; p < end; ++p) {
      if (paged.addressing == AS_LOGICAL) {
        visit(RowVisit{token, p, *at<std::int32_t>(table, request) + p});
        continue;
      }
      const std::int64_t column = p / paged.rows_per_block;
      if (column >= table.shape[1]) return visit(RowVisit{token, p, kBeyondTable});
      const std::int64_t block = *at<std::int32_t>(table, request, column);
      visit(RowVisit{token, p, block * paged.rows_per_block + p % paged.rows_per_block});
    }
  }

  const char* params_;
  const as_cache_access& access_;
};

}  // namespace attnscope
