// Rows between pages and a pool of one cache, each as its number says: bytes.
#include <algorithm>

#include "reference/ops.h"
#include "reference/tensors.h"

namespace attnscope::reference {
namespace {

void copy_each(const as_cache& from, const as_tensor& from_rows, const as_cache& to,
               const as_tensor& to_rows, const char* what, std::int64_t count) {
  const Integers sources(from_rows, "rows to copy", {count});
  const Integers targets(to_rows, what, {sources.size(0)});
  const Bytes read(from.data, "rows that are read", {kAny, kAny});
  const Bytes written(to.data, what, {kAny, from.data.shape[1]});
  for (std::int64_t n = 0; n < sources.size(0); ++n) {
    if (sources.get(n) < 0 || targets.get(n) < 0) continue;
    check_index(sources.get(n), from.data.shape[0], "row that is read", n);
    check_index(targets.get(n), to.data.shape[0], "row that is written", n);
    std::copy_n(read.row(sources.get(n)), from.data.shape[1], written.row(targets.get(n)));
  }
}

}  // namespace

void exchange_rows(const as_exchange_rows_params& p, const Precision&) {
  const Integers selected(p.selected, "selected", {kAny, kAny});
  const std::int64_t tokens = selected.size(0), listed = selected.size(1);
  const Integers places(p.places, "places", {tokens, listed});
  const Integers slots(p.slots, "slots", {tokens, listed});
  for (const as_cache* c : {&p.fresh, &p.pages, &p.missed, &p.pool}) {
    if (c->addressing == AS_LOGICAL) continue;
    throw BadInput("a cache has pages; references read and write rows by number");
  }
  copy_each(p.fresh, p.fresh_from, p.pages, p.pages_to, "pages", tokens);
  copy_each(p.missed, p.missed_from, p.pool, p.pool_to, "pool", kAny);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t k = 0; k < listed; ++k) {
      const bool pooled = places.get(t, k) >= 0;
      slots.set(pooled ? places.get(t, k) : selected.get(t, k), t, k);
    }
  }
}

}  // namespace attnscope::reference
