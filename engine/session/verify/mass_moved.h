// What a wrong or tied selection does to the attention: the share of it that went to entries the
// reference did not choose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/params/attention_params.h"
#include "kernels/params/lane.h"

namespace attnscope {

// Places of a selection list that hold entries the reference's list does not.
struct SwappedPlaces {
  std::vector<std::int32_t> tokens;
  std::vector<std::vector<std::int32_t>> places;  // by tokens
};

// indices, reference: i32 [T,K].
SwappedPlaces swapped_places(const as_tensor& indices, const as_tensor& reference);

// Largest over tokens and heads, of the attention that read this selection.
double mass_moved(const SwappedPlaces& swapped, const as_sparse_attention_params& params,
                  const as_threads* threads);

}  // namespace attnscope
