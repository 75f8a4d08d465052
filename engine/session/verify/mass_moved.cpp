#include "engine/session/verify/mass_moved.h"

#include <algorithm>
#include <set>

#include "engine/session/step/attention_copy.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

SwappedPlaces swapped_places(const as_tensor& indices, const as_tensor& reference) {
  SwappedPlaces swapped;
  for (std::int64_t t = 0; t < indices.shape[0]; ++t) {
    const auto* theirs = at<std::int32_t>(reference, t);
    const std::set<std::int32_t> chosen(theirs, theirs + reference.shape[1]);
    std::vector<std::int32_t> places;
    for (std::int64_t k = 0; k < indices.shape[1]; ++k) {
      const std::int32_t entry = *at<std::int32_t>(indices, t, k);
      if (entry >= 0 && chosen.count(entry) == 0) places.push_back(static_cast<std::int32_t>(k));
    }
    if (places.empty()) continue;
    swapped.tokens.push_back(static_cast<std::int32_t>(t));
    swapped.places.push_back(std::move(places));
  }
  return swapped;
}

double mass_moved(const SwappedPlaces& swapped, const as_sparse_attention_params& params,
                  const as_threads* threads) {
  const AttentionCopy copy = copy_attention(params, swapped.tokens, threads);
  const std::int64_t columns = copy.window + copy.extra;
  double most = 0;
  for (std::size_t i = 0; i < swapped.tokens.size(); ++i) {
    for (std::int64_t h = 0; h < copy.heads; ++h) {
      const float* weights =
          copy.weights.data() + (static_cast<std::int64_t>(i) * copy.heads + h) * columns;
      double sum = 0;
      for (const std::int32_t k : swapped.places[i]) {
        // Selected rows are the entries, or all that is listed.
        const std::int64_t column = copy.extra > 0 ? copy.window + k : k;
        if (column < columns) sum += static_cast<double>(weights[column]);
      }
      most = std::max(most, sum);
    }
  }
  return most;
}

}  // namespace attnscope
