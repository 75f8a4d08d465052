// Whether an op is given the pages of its layer: the table, the slots and the window list of the
// group that its cache belongs to, as the step's ops have put them out, and how many rows a page
// holds. Writer and reader that use another group's agree with one another, and with references,
// whose histories have no pages.
#pragma once

#include <string>
#include <vector>

#include "app/wiring/exchange_audit.h"
#include "engine/cache/cache_layout.h"
#include "engine/session/step/op_params.h"

namespace attnscope {

class PageAudit {
 public:
  struct Fault {
    std::string what;  // a tap of the op, or a number: "table", "rows_per_block"
    std::string note;
  };
  // host_rows: what decoding tokens select lies in host memory (exchange_audit.h).
  PageAudit(CacheLayout layout, bool host_rows)
      : layout_(std::move(layout)), host_rows_(host_rows) {}

  // Of an op of the session's own rank; those before the layers bring what the others must be
  // given.
  std::vector<Fault> op_done(const OpParams& params, int layer);
  // Whether a group has a cache of this running layer or of one behind it.
  bool has_layer_from(int group, int layer) const;

 private:
  void number(const char* what, std::int64_t given, std::int64_t right);
  // given: [R,C] of all [G,R,C] or [T] of all [G,T].
  void part_of(const char* what, const as_tensor& given, const as_tensor& all, int group);
  // given: of a type of layers, of all.
  void plan(const char* what, const as_tensor& given, const as_tensor& all, int type);
  void cache(const char* what, const as_cache& given, const CacheSpec& spec);
  void layer_op(const OpParams& params, int layer);
  const CacheSpec& spec(int layer, CacheId id) const { return *layout_.find(layer, id); }

  CacheLayout layout_;
  bool host_rows_;
  ExchangeAudit exchange_;
  as_tensor tables_{}, slots_{}, c4_slots_{}, c128_slots_{}, swa_indices_{};  // of this step
  as_tensor plan_rows_{}, plan_splits_{};
  std::vector<Fault> faults_;
};

}  // namespace attnscope
