// A params struct as a forced reference needs it: the engine's own inputs, its caches replaced by
// the shadow's logical histories, its slot lists translated to logical rows, and outputs of its
// own.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/session/step/frame.h"
#include "engine/session/step/history.h"
#include "engine/session/step/most_taps.h"
#include "engine/session/step/op_params.h"
#include "engine/session/step/rows_as_read.h"
#include "kernels/params/cache_access.h"

namespace attnscope {

class ForcedCopy {
 public:
  ForcedCopy(const CacheLayout& layout, const Shadow& shadow) : layout_(layout), shadow_(shadow) {}

  // exact: float64 rows instead of records. as_read: a reader's rows are not those that were
  // written; it gets the bytes that it will gather, not the shadow's. peer: whose op it is
  // (CacheLayout::find). The result is valid until the next make() or requantise().
  OpParams& make(const OpParams& engine, int layer, const LogicalMetadata& logical, bool exact,
                 bool as_read, int peer);

  // For quantising ops: the same op with rows_given, on the engine's own row before quantisation.
  // False when the lane withheld the row or the op does not quantise.
  bool requantise(const OpParams& engine, OpParams* out);

  OpParams& params() { return params_; }
  // Of the last make() with as_read.
  const std::vector<bool>& wild_tokens() const { return rows_as_read_.wild_tokens(); }

 private:
  as_cache output_cache(const as_cache& engine, std::int64_t rows, bool exact, Scratch& scratch);
  // The shadow's rows in the place of those that the op reads.
  void read_shadow(const OpParams& engine, int layer, const LogicalMetadata& logical, int peer);
  void whole_requests(const as_cache_access& access, std::int32_t chunk,
                      const LogicalMetadata& logical);
  // A list of slots as one of logical rows.
  as_tensor translate(const OpParams& engine, const as_cache_access& access, const CacheSpec& spec,
                      const LogicalMetadata& logical, std::vector<std::int32_t>& memory) const;

  as_tensor rows_in_slots(const OpParams& engine, const as_cache_access& access,
                          const CacheSpec& spec, std::vector<std::int64_t>& memory) const;

  const CacheLayout& layout_;
  const Shadow& shadow_;
  OpParams params_;
  std::array<Scratch, kMostTaps> outputs_;
  Scratch exact_query_;  // index queries as values, where the kernel has codes
  std::array<Scratch, kMostTaps> requantised_;              // by tap
  std::array<std::vector<std::int64_t>, kMostTaps> slots_;  // of rows that are written, by tap
  std::vector<std::vector<std::int32_t>> lists_;            // by access
  std::vector<std::vector<std::int64_t>> moved_;            // likewise
  RowsAsRead rows_as_read_;
};

// Rows of a cache as a U8 (records) or F32 (state) tensor [T, bytes or width], gathered through
// slots; rows with slot -1 are zero.
as_tensor gather_rows(const as_cache& cache, const as_tensor& slots, Scratch& scratch);

// Whether a tensor of this dtype holds float values (not codes or integers).
bool is_float(std::int32_t dtype);

}  // namespace attnscope
