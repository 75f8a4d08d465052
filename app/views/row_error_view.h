// What storing rows of a layer cost: how far the numbers that are read back from each head of each
// row are from those that were stored, for every cache that the layer's ops wrote in a step.
//
//   RowErrorView view = row_error_view(info, step, layer);
//   view.caches[0].errors[row * view.caches[0].heads + head]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// Of one cache. error: length of the difference over length of the head's numbers; NaN where they
// are no numbers or 0 while what is read back is not.
struct CacheErrors {
  std::string name;                // of the tap: "k_cache"
  std::string format;              // of its rows: "fp8_token_head"
  std::int64_t heads = 1;          // of a row
  std::vector<std::int32_t> rows;  // token rows of the step
  std::vector<double> errors;      // [rows, heads]
  std::vector<double> of_heads;    // [heads] over all rows: length of differences over length
  double largest = 0;              // finite one
  std::int64_t worst_row = -1;     // index into `rows`, and its head
  std::int64_t worst_head = -1;
  std::int64_t not_numbers = 0;  // errors that are NaN
};

struct RowErrorView {
  std::string why_empty;  // not empty: nothing to show, for this reason
  bool none = false;      // then: the step has no token whose rows the layer stores
  int layer = -1;         // published number
  std::vector<CacheErrors> caches;
  double largest = 0;  // of all caches
  std::string sentence;
};

// layer: published number.
RowErrorView row_error_view(const SessionInfo& info, const StepTrace& step, int layer);

// The largest error of a head over rows first .. end - 1; NaN where one of them is. row: its index.
struct WorstOfRows {
  double error = 0;
  std::int64_t row = -1;
};
WorstOfRows worst_of_rows(const CacheErrors& cache, std::int64_t head, std::int64_t first,
                          std::int64_t end);

}  // namespace attnscope
